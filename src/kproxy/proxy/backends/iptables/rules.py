"""Typed values of iptables mode, beside the rules of `kproxy.linux.netfilter`.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kproxy.linux.netfilter.rules import Rule
    from kproxy.proxy.backends.iptables.names import SharedChain
    from kproxy.proxy.backends.xtables.rules import ChainName, Destination
    from kproxy.proxy.plan import PoolEndpoint


class SharedRule(NamedTuple):
    """A rule, the shared chain it belongs to, and the destination it matches."""

    chain: SharedChain
    rule: Rule
    destination: Destination


class NamedEndpoint(NamedTuple):
    """An endpoint, the text ``10.0.0.1:80`` (``[fd00::1]:80``), and the chain named after it."""

    endpoint: PoolEndpoint
    text: str
    chain: ChainName
