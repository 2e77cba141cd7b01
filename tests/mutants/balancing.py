"""Mutants of how connections spread over endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kproxy.linux.netfilter.matches import one_in
from kproxy.linux.netfilter.rules import Chance, Jump, Step
from kproxy.proxy.backends.nftables.compile import SetElement
from kproxy.proxy.plan import Pool, PoolEndpoint
from tests.mutants.mutant import Function, Patch, Wrap, in_nftables, instead, mutant
from tests.mutants.patches.iptables import ENDPOINT, POOLS, Rules, with_match, without
from tests.mutants.patches.objects import Merged

COMPILE = "kproxy.proxy.backends.nftables.compile:"


def _as_if_one_more(match: Step) -> Step:
    return one_in(match.share.denominator + 1) if isinstance(match, Chance) else match


def _at_most(number: int) -> Wrap:
    return lambda merge: lambda *of: {key: found[:number] for key, found in merge(*of).items()}


def _each_slice_by_itself(merge: Function) -> Function:
    """Wrap that concatenates the endpoints of slices instead of merging them."""

    def put_together(slices: Iterable[Any], wanted: Any, *of: Any) -> Merged:  # noqa: ANN401
        found: list[Merged] = [merge([one], wanted, *of) for one in slices]
        return {key: tuple(endpoint for part in found for endpoint in part[key]) for key in wanted}

    return put_together


def _with_a_gap(elements: Function) -> Function:
    """The last endpoint has the number after its own, which no rule draws; its own number is unused."""

    def gapped(*of: Any) -> Iterator[SetElement]:  # noqa: ANN401
        found: list[SetElement] = list(elements(*of))
        numbers = [element.key[-1] for element in found if _numbered(element)]
        last = max((n for n in numbers if isinstance(n, int)), default=0)
        for element in found:
            moved = last and _numbered(element) and element.key[-1] == last
            yield element._replace(key=(*element.key[:-1], last + 1)) if moved else element

    return gapped


def _numbered(element: SetElement) -> bool:
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
    mutant(
        "balancing.first-always",
        "The first endpoint gets every connection.",
        *without(Rules(chain=POOLS, target=Jump(ENDPOINT)), Chance),
        clauses="balancing.every-endpoint-chosen",
    ),
    mutant(
        "balancing.last-twice",
        "The last endpoint gets twice what each of the others gets.",
        *with_match(Rules(chain=POOLS, target=Jump(ENDPOINT)), _as_if_one_more),
        clauses="balancing.even",
    ),
    in_nftables(
        "slices.duplicates-doubled",
        "An endpoint listed twice counts twice.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _each_slice_by_itself),
        clauses="balancing.even",
    ),
    mutant(
        "slices.first-hundred",
        "Of a Service's endpoints the first hundred count.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _at_most(100)),
        clauses="balancing.any-number-of-endpoints",
    ),
    mutant(
        "slices.first-thousand",
        "Of a Service's endpoints the first thousand count.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _at_most(1000)),
        clauses="balancing.any-number-of-endpoints",
    ),
    in_nftables(
        "nftables.numbers-with-a-gap",
        "The number before the last endpoint's belongs to no endpoint.",
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
)
