"""Mutants of ICMP errors."""

from __future__ import annotations

from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.xtables.rules import Accept, Conntrack, ConntrackStatus
from tests.mutants.mutant import mutant
from tests.mutants.patches.iptables import FILTER, Rules, with_match

MUTANTS = (
    mutant(
        "forward.errors",
        "Errors that belong to a served flow are not accepted where forwarding is dropped by default.",
        *with_match(
            Rules(chain=names.FORWARD, target=Accept, table=FILTER, having=(Conntrack,)),
            lambda _: Conntrack((ConntrackStatus.ESTABLISHED,)),
        ),
        clauses="icmp.errors.translated-back node-port.forward-policy-drop.passes",
        needs_kernel=True,
    ),
)
