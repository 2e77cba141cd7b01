"""The chains of endpoints as text, by far the most of what ``iptables-restore`` is given.

They are alike but for a name and an address: so the chain of one that nobody has is rendered, once for each
kind, and the others are filled into its lines.  Beside `kproxy.backends.iptables.rules`, which renders all else.  Pure.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from kproxy.backends.iptables.compile import NamedEndpoint, endpoint_chain
from kproxy.backends.iptables.rules import COMMENT_LIMIT, render
from kproxy.net import Family, text_of
from kproxy.plan import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproxy.backends.iptables.compile import EndpointKind
    from kproxy.backends.iptables.rules import ChainName
    from kproxy.net import Address

_NOBODYS: dict[Family, Address] = {
    Family.IPV4: IPv4Address("255.255.255.255"),
    Family.IPV6: IPv6Address("ff00::ffff"),
}
_SUBJECT = "SUBJECT"


def endpoint_texts(
    targets: Iterable[NamedEndpoint], kind: EndpointKind, subject: str
) -> Iterator[tuple[ChainName, tuple[str, ...]]]:
    """Name and ``-A`` lines of each endpoint's chain: what `render` makes of `endpoint_chain`."""
    patterns = _patterns(kind)
    about = subject[:COMMENT_LIMIT]
    for _, address, text, chain in targets:
        yield chain, tuple([fill(chain, address, text, about) for fill in patterns])


@cache
def _patterns(kind: EndpointKind) -> tuple[Callable[..., str], ...]:
    """One a line, to be called with chain, address, address and port, subject."""
    address = text_of(_NOBODYS[kind.family])
    text = f"{address}:65535" if kind.family is Family.IPV4 else f"[{address}]:65535"
    nobody = NamedEndpoint(Endpoint(_NOBODYS[kind.family], 65535, local=False), address, text, "CHAIN")
    slots = {nobody.text: "{2}", nobody.address: "{1}", nobody.chain: "{0}", _SUBJECT: "{3}"}
    return tuple(_with_slots(line, slots).format for line in render(endpoint_chain(nobody, kind, _SUBJECT)))


def _with_slots(line: str, slots: dict[str, str]) -> str:
    for text, slot in slots.items():
        line = line.replace(text, slot)
    return line
