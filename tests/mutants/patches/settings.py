"""Patches of `kproxy.proxy.plan`: functions that are given other settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kproxy.proxy import snapshot
from kproxy.proxy.plan import PlanSettings
from tests.mutants.mutant import Function

Ends = Iterable[snapshot.EndpointInfo]


def with_settings(**settings: Any) -> Any:  # noqa: ANN401
    """A wrap for a function whose last parameter is the settings, some of which are others."""

    def wrap(function: Function) -> Function:
        def deaf(*of: Any) -> Any:  # noqa: ANN401
            *others, own = of
            assert isinstance(own, PlanSettings)
            return function(*others, replace(own, **settings))

        return deaf

    return wrap
