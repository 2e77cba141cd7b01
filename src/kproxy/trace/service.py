"""Which Service port rules belong to, by the words their proxy put there.  Pure.

kube-proxy and kproxy write ``NAMESPACE/NAME:PORT`` at the start of comments of iptables rules and of nftables elements;
in nftables mode both have it in the names of chains, as ``service-HASH-NAMESPACE/NAME/PROTOCOL/PORT``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kproxy.trace.state import Note, State

_COMMENT = re.compile(r"(?P<name>[a-z0-9-]+/[a-z0-9.-]+(:[a-z0-9-]*)?)(?= |$)")
_CHAIN = re.compile(
    r"(affinity-[A-Z2-7]{8}-(cluster|local)|(service|external|firewall|endpoint)-[A-Z2-7]{8})-"
    r"(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9.-]+)/(tcp|udp|sctp)/(?P<port>[a-z0-9-]*)"
)


def names(states: Iterable[State]) -> tuple[str, ...]:
    """The Service ports that the steps of these ways name, in the order of the ways."""
    found = (name for state in states for note in state.notes for name in _of(note))
    return tuple(dict.fromkeys(found))


def _of(note: Note) -> Iterable[str]:
    if (comment := _COMMENT.match(note.comment)) is not None:
        yield comment["name"].removesuffix(":")
    for chain in _CHAIN.finditer(f"{note.chain} {note.words}"):
        port = f":{chain['port']}" if chain["port"] else ""
        yield f"{chain['namespace']}/{chain['service']}{port}"
