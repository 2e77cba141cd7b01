"""Mutants of protocols."""

from __future__ import annotations

from tests.mutants.mutant import Patch, mutant

MUTANTS = (
    mutant(
        "services.no-sctp",
        "Ports of SCTP are left out.",
        Patch(
            "kproxy.proxy.snapshot.services:PROTOCOLS",
            lambda known: {name: number for name, number in known.items() if name != "SCTP"},
        ),
        clauses="protocol.sctp.without-sockets.served",
    ),
)
