"""Typed values of userspace mode, beside the rules of `kproxy.linux.netfilter`.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kproxy.linux.netfilter.rules import Rule
    from kproxy.proxy.backends.xtables.rules import ChainName, Destination


class ChainRule(NamedTuple):
    """A rule and the chain that it belongs to; ``destination``: of the frontend that it is for, None for others."""

    chain: ChainName
    rule: Rule
    destination: Destination | None = None
