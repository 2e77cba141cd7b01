"""The chains of endpoints, and those that choose among them, as text: by far the most of what ``iptables-restore`` is given.

They are alike but for names and an address: so what one that nobody has would get is rendered, once for each
kind, and the others are filled into its lines.  Beside `kproxy.proxy.backends.iptables.rules`, which renders all else.  Pure.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from kproxy.model.network import Family, format_address
from kproxy.proxy.backends.iptables.compile import NamedEndpoint, affinity_jump, endpoint_chain, random_jump
from kproxy.proxy.backends.iptables.rules import COMMENT_LIMIT, render, specification
from kproxy.proxy.plan import PoolEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproxy.model.network import Address
    from kproxy.proxy.backends.iptables.compile import EndpointChainOptions, PoolChain
    from kproxy.proxy.backends.iptables.rules import ChainName, Rule

_PLACEHOLDER_ADDRESSES: dict[Family, Address] = {
    Family.IPV4: IPv4Address("255.255.255.255"),
    Family.IPV6: IPv6Address("ff00::ffff"),
}
_SUBJECT = "SUBJECT"


def pool_text(pool: PoolChain) -> tuple[str, ...]:
    """The ``-A`` lines of the chain that chooses an endpoint: what `render` makes of `pool_chain`."""
    append = f"-A {pool.name} "
    lines = [append + specification(rule) for rule in pool.first]
    subject, seconds = pool.subject, pool.affinity_seconds
    if seconds is not None:
        fill = _affinity_template(seconds, commented=bool(subject))
        lines += [append + fill(target.chain, _comment_option(target, subject)) for target in pool.targets]
    left = len(pool.targets)
    for target in pool.targets:
        fill = _random_template(left, commented=bool(subject))
        lines.append(append + fill(target.chain, _comment_option(target, subject)))
        left -= 1
    return tuple(lines)


def _comment_option(target: NamedEndpoint, subject: str) -> str:
    return f"{subject} -> {target.text}"[:COMMENT_LIMIT] if subject else ""


@cache
def _affinity_template(seconds: int, *, commented: bool) -> Callable[..., str]:
    return _jump(affinity_jump(_placeholder_endpoint(Family.IPV4), seconds, _SUBJECT if commented else ""))


@cache
def _random_template(left: int, *, commented: bool) -> Callable[..., str]:
    return _jump(random_jump(_placeholder_endpoint(Family.IPV4), left, _SUBJECT if commented else ""))


def _jump(rule: Rule) -> Callable[..., str]:
    """A rule of nobody's, to be called with chain and comment."""
    slots = {
        f"{_SUBJECT} -> {_placeholder_endpoint(Family.IPV4).text}": "{1}",
        _placeholder_endpoint(Family.IPV4).chain: "{0}",
    }
    return _with_slots(specification(rule), slots).format


def endpoint_texts(
    targets: Iterable[NamedEndpoint], kind: EndpointChainOptions, subject: str
) -> Iterator[tuple[ChainName, tuple[str, ...]]]:
    """Name and ``-A`` lines of each endpoint's chain: what `render` makes of `endpoint_chain`."""
    patterns = _templates(kind)
    about = subject[:COMMENT_LIMIT]
    for _, address, text, chain in targets:
        yield chain, tuple([fill(chain, address, text, about) for fill in patterns])


@cache
def _templates(kind: EndpointChainOptions) -> tuple[Callable[..., str], ...]:
    """One a line, to be called with chain, address, address and port, subject."""
    nobody = _placeholder_endpoint(kind.family)
    slots = {nobody.text: "{2}", nobody.address: "{1}", nobody.chain: "{0}", _SUBJECT: "{3}"}
    return tuple(_with_slots(line, slots).format for line in render(endpoint_chain(nobody, kind, _SUBJECT)))


def _placeholder_endpoint(family: Family) -> NamedEndpoint:
    address = format_address(_PLACEHOLDER_ADDRESSES[family])
    text = f"{address}:65535" if family is Family.IPV4 else f"[{address}]:65535"
    return NamedEndpoint(
        PoolEndpoint(_PLACEHOLDER_ADDRESSES[family], 65535, local=False), address, text, "CHAIN"
    )


def _with_slots(line: str, slots: dict[str, str]) -> str:
    for text, slot in slots.items():
        line = line.replace(text, slot)
    return line
