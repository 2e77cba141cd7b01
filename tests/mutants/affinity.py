"""Mutants of session affinity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kproxy.linux.netfilter.rules import Dnat, Jump, Recent, Remember, Step
from kproxy.proxy.backends.ipvs.rules import Server
from tests.mutants.mutant import Function, Patch, in_ipvs, in_nftables, instead, mutant
from tests.mutants.patches.iptables import ENDPOINT, POOLS, Rules, left_out, with_match, without
from tests.mutants.patches.ipvs import without_setting
from tests.mutants.patches.objects import with_services

KERNEL = "kproxy.proxy.backends.iptables.kernel.applier:IptablesKernel."
_RECENT = Path("/proc/thread-self/net/xt_recent")
_ADD = 0
"""NFT_DYNSET_OP_ADD of linux/netfilter/nf_tables.h: existing elements stay unchanged."""


def _for_three_hours(match: Step) -> Step:
    return msgspec.structs.replace(match, seconds=10800) if isinstance(match, Recent) else match


def _for_twice_as_long(match: Step) -> Step:
    return (
        msgspec.structs.replace(match, seconds=2 * (match.seconds or 0))
        if isinstance(match, Recent)
        else match
    )


def _forgetting_clients(write: Function) -> Function:
    """Affinity entries are removed before rules are written."""

    def writing(self: Any, *of: Any) -> Any:  # noqa: ANN401
        for clients in _RECENT.glob("*"):
            clients.write_text("/\n")
        return write(self, *of)

    return writing


MUTANTS = (
    mutant(
        "affinity.not-looked-up",
        "The endpoint that a client had is not looked up.",
        *left_out(Rules(chain=POOLS, target=Jump(ENDPOINT), having=(Recent,))),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    mutant(
        "affinity.not-remembered",
        "The endpoint that a client has is not remembered.",
        *without(Rules(chain=ENDPOINT, target=Dnat), Remember),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    mutant(
        "affinity.three-hours",
        "Affinity lasts three hours, whatever the Service's timeout.",
        *with_match(Rules(chain=POOLS, target=Jump(ENDPOINT)), _for_three_hours),
        clauses="affinity.timeout.frees-choice affinity.timeout-change.followed",
        needs_kernel=True,
    ),
    mutant(
        "affinity.twice-as-long",
        "Affinity lasts twice as long as the Service's timeout.",
        *with_match(Rules(chain=POOLS, target=Jump(ENDPOINT)), _for_twice_as_long),
        clauses="affinity.timeout.frees-choice affinity.timeout-change.followed",
        needs_kernel=True,
    ),
    mutant(
        "affinity.ignored",
        "Session affinity is not obeyed.",
        with_services(lambda service: msgspec.structs.replace(service, affinity_seconds=None)),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    mutant(
        "affinity.forgotten-at-start",
        "A proxy that starts forgets the endpoints that clients stick to.",
        Patch(f"{KERNEL}_rewrite", _forgetting_clients),
        clauses="affinity.stays-over-restart",
        needs_kernel=True,
    ),
    mutant(
        "affinity.forgotten-at-change",
        "Every change removes the entries of affinity.",
        Patch(f"{KERNEL}apply", _forgetting_clients),
        clauses="affinity.endpoint-added.stays",
        needs_kernel=True,
    ),
    in_nftables(
        "nftables.affinity-from-the-first-connection",
        "The time of affinity begins with a client's first connection, and later ones do not begin it again.",
        Patch("kproxy.proxy.backends.nftables.kernel.expressions:_DYNSET_UPDATE", lambda _: _ADD),
        clauses="affinity.timeout.frees-choice",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.affinity",
        "Virtual servers do not persist.",
        Patch(
            "kproxy.proxy.backends.ipvs.compile:_address_scheduling",
            instead(lambda _, context: Server(context.scheduler)),
        ),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.settings.quiescent",
        "A client sticks to an endpoint that is gone.",
        without_setting("net/ipv4/vs/expire_quiescent_template"),
        clauses="affinity.endpoint-gone.moves-at-once",
        needs_kernel=True,
    ),
)
