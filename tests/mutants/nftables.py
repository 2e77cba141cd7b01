"""Mutants of nftables mode: elements of maps, and chains that look them up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from kproxy.proxy.backends.nftables.compile import Element
from kproxy.proxy.plan import Pool, PoolEndpoint
from tests.mutants.mutant import Function, Patch, instead, mutant

in_nftables = partial(mutant, mode="nftables")

COMPILE = "kproxy.proxy.backends.nftables.compile:"
_ADD = 0
"""NFT_DYNSET_OP_ADD of linux/netfilter/nf_tables.h: existing elements stay unchanged."""


def _with_a_gap(elements: Function) -> Function:
    """The last endpoint has the number after its own, which no rule draws; its own number is unused."""

    def gapped(*of: Any) -> Iterator[Element]:  # noqa: ANN401
        found: list[Element] = list(elements(*of))
        numbers = [element.key[-1] for element in found if _numbered(element)]
        last = max((n for n in numbers if isinstance(n, int)), default=0)
        for element in found:
            moved = last and _numbered(element) and element.key[-1] == last
            yield element._replace(key=(*element.key[:-1], last + 1)) if moved else element

    return gapped


def _numbered(element: Element) -> bool:
    """True for an element that maps a number to an endpoint."""
    return isinstance(element.value, tuple)


def _first_again(pool: Pool) -> Pool:
    return msgspec.structs.replace(pool, endpoints=(*pool.endpoints, *pool.endpoints[:1]))


def _in_pools(pools: Function) -> Function:
    return lambda service: {scope: _first_again(pool) for scope, pool in pools(service).items()}


def _in_choices(choices: Function) -> Function:
    return lambda frontend: ((choice, _first_again(pool)) for choice, pool in choices(frontend))


def _left_where_they_were(dense: Function) -> Function:
    """Other endpoints keep their numbers; a free number is given to the first endpoint."""

    def sparse(
        before: tuple[PoolEndpoint, ...], wanted: tuple[PoolEndpoint, ...]
    ) -> tuple[PoolEndpoint, ...]:
        if len(wanted) >= len(before):
            return tuple(dense(before, wanted))
        return tuple(endpoint if endpoint in wanted else wanted[0] for endpoint in before[: len(wanted)])

    return sparse


MUTANTS = (
    in_nftables(
        "nftables.numbers-with-a-gap",
        "The number before the last endpoint's is nobody's.",
        Patch(f"{COMPILE}service_elements", _with_a_gap),
        clauses="balancing.even balancing.every-endpoint-chosen",
    ),
    in_nftables(
        "nftables.first-twice",
        "The first endpoint has two numbers.",
        Patch(f"{COMPILE}used_pools", _in_pools),
        Patch(f"{COMPILE}_pools", _in_choices),
        Patch(f"{COMPILE}assign_numbers", instead(lambda _, wanted: wanted)),
        clauses="balancing.even",
    ),
    in_nftables(
        "nftables.numbers-not-moved-up",
        "When endpoints leave, no other takes their numbers: the first one is given them.",
        Patch(f"{COMPILE}assign_numbers", _left_where_they_were),
        clauses="balancing.even balancing.every-endpoint-chosen",
        needs_kernel=True,
    ),
    in_nftables(
        "nftables.node-port-anywhere",
        "Where all addresses of the node serve node ports, any address does.",
        Patch(
            "kproxy.proxy.backends.nftables.static_rules:node_port_destinations",
            lambda found: lambda *of: found(*of)[:1],
        ),
        clauses="node-port.number-on-service-address.not-served",
    ),
    in_nftables(
        "nftables.affinity-from-the-first-connection",
        "The time of affinity begins with a client's first connection, and later ones do not begin it again.",
        Patch("kproxy.proxy.backends.nftables.kernel.expressions:_DYNSET_UPDATE", lambda _: _ADD),
        clauses="affinity.timeout.frees-choice",
        needs_kernel=True,
    ),
)
