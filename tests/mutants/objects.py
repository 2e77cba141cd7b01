"""Mutants of which Services are served at all."""

from __future__ import annotations

from kproxy.model import api
from tests.mutants.mutant import Patch, mutant
from tests.mutants.patches.objects import selecting_all, without_label

MUTANTS = (
    mutant(
        "services.proxy-name-ignored",
        "Services of another proxy are served.",
        Patch("kproxy.proxy.snapshot.services:_is_proxied", without_label(api.PROXY_NAME_LABEL)),
        selecting_all("SERVICES"),
        clauses="objects.proxy-name-label.untouched",
    ),
)
