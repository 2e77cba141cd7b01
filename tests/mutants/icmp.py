"""Mutants of ICMP errors."""

from __future__ import annotations

from kproxy.linux.netfilter.matches import in_state
from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End
from kproxy.proxy.backends.iptables import names
from tests.mutants.mutant import mutant
from tests.mutants.patches.iptables import FILTER, Rules, with_match

MUTANTS = (
    mutant(
        "forward.errors",
        "Errors that belong to a served flow are not accepted where forwarding is dropped by default.",
        *with_match(
            Rules(chain=names.FORWARD, target=End.ACCEPT, table=FILTER, having=(FieldName.STATE,)),
            lambda _: in_state("established"),
        ),
        clauses="icmp.errors.translated-back node-port.forward-policy-drop.passes",
        needs_kernel=True,
    ),
)
