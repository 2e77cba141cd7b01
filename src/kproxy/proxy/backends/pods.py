"""The matches that tell packets of this node's pods from others.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.linux.netfilter.matches import in_interface, source_in
from kproxy.linux.netfilter.patterns import Prefix
from kproxy.proxy.plan import DetectByCIDR, DetectByInterface, DetectByInterfacePrefix

if TYPE_CHECKING:
    from kproxy.linux.netfilter.rules import Match
    from kproxy.proxy.plan import LocalDetector


def from_pods(detector: LocalDetector, *, negated: bool = False) -> tuple[Match, ...]:
    """The match for packets of this node's pods (negated: of all others); none without a detector."""
    match detector:
        case DetectByCIDR(network):
            return (source_in(network, negated=negated),)
        case DetectByInterface(name):
            return (in_interface(name, negated=negated),)
        case DetectByInterfacePrefix(prefix):
            return (in_interface(Prefix(prefix), negated=negated),)
        case None:
            return ()
