"""Patches of `kproxy.proxy.snapshot`: how the cluster's objects are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from kproxy.proxy import snapshot
from tests.mutants.mutant import Function, Patch, Wrap

Merged = dict[Any, tuple[snapshot.EndpointInfo, ...]]
"""Endpoints of each port."""


def with_services(changed: Callable[[snapshot.ServiceInfo], snapshot.ServiceInfo]) -> Patch:
    """Patch that changes each Service as it is read."""

    def wrap(read: Function) -> Function:
        def service_of(*of: Any) -> tuple[snapshot.ServiceInfo | None, tuple[snapshot.Note, ...]]:  # noqa: ANN401
            service, notes = read(*of)
            return service and changed(service), notes

        return service_of

    return Patch("kproxy.proxy.snapshot.incremental:normalise_service", wrap)


def without_label(label: str) -> Wrap:
    """Wrap that hides a label from a function of an object."""

    def wrap(judge: Function) -> Function:
        def blind(item: Any, *of: Any) -> Any:  # noqa: ANN401
            labels = {name: text for name, text in item.metadata.labels.items() if name != label}
            metadata = msgspec.structs.replace(item.metadata, labels=labels)
            return judge(msgspec.structs.replace(item, metadata=metadata), *of)

        return blind

    return wrap


def selecting_all(resource: str) -> Patch:
    """The watch's own selection of objects would hide the mutant."""
    return Patch(f"kproxy.proxy.daemon.main:{resource}", lambda requested: replace(requested, selectors={}))
