"""Shrinking: reduces a failing world to a small case that still fails.

Theory of operation. Greedy delta debugging over the case's structure. `smaller_cases` yields every case that is one
step simpler: without one step, with one Service, endpoint or port less, with one field at its default, under the
default profile. Each gets the oracle's expectations anew (`kproxy.conformance.generate.oracle_answers`), since the
lawful outcomes of a smaller world may differ; a candidate that is no valid case is skipped.

All candidates of a round are run at once (``fails``): cases share labs and barriers, so a round costs about as much
as one case. The first failing candidate is taken, and the next round begins with it, until no candidate fails or time
is up. Candidates are ordered with large cuts first, and the very first attempt drops all probes but the failing one,
which usually removes most of the world. The result is locally minimal, not the smallest possible; any failure counts,
not only that of the original step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from kproxy.conformance.binding.bind import InvalidCase
from kproxy.conformance.case import DEFAULT, Apply, Case, CaseEndpoint, CaseService, Port, Probe, Step
from kproxy.conformance.generate.oracle_answers import with_oracle_answers

Fails = Callable[[Sequence[Case]], Awaitable[Sequence[bool]]]
"""Function that runs some cases at once and returns which of them fail."""

T = TypeVar("T")


async def shrink_case(
    case: Case, failing: int, fails: Fails, expired: Callable[[], bool] = lambda: False
) -> Case:
    """Smallest failing form found; ``failing``: the number of an unlawful step (from 1).

    ``expired`` is called before each round: it ends the search with the smallest form so far.
    """
    first = _only_probe(case, failing - 1)
    if not (await fails([first]))[0]:
        first = case
    return await _shrink_step(first, fails, expired)


async def _shrink_step(case: Case, fails: Fails, expired: Callable[[], bool]) -> Case:
    """Replace the case by its first smaller form that still fails, and repeat."""
    while not expired() and (tried := list(smaller_cases(case))):
        verdicts = await fails(tried)
        left = next((cut for cut, failed in zip(tried, verdicts, strict=True) if failed), None)
        if left is None:
            break
        case = left
    return case


def _only_probe(case: Case, at: int) -> Case:
    """The changes up to a probe, and that probe."""
    before = tuple(step for step in case.steps[:at] if not isinstance(step, Probe))
    return with_oracle_answers(replace(case, steps=(*before, case.steps[at])))


def smaller_cases(case: Case) -> Iterator[Case]:
    """Cases with one thing less, with the oracle's expectations; invalid ones are left out."""
    for draft in _cuts(case):
        try:
            found = with_oracle_answers(draft)
        except (InvalidCase, KeyError):
            continue
        if found != case and any(isinstance(step, Probe) for step in found.steps):
            yield found


def _cuts(case: Case) -> Iterator[Case]:
    for number, step in enumerate(case.steps):
        yield replace(case, steps=without(case.steps, number))
        if isinstance(step, Apply):
            for plainer in smaller_applies(step, _plainer_service):
                yield replace(case, steps=_with(case.steps, number, plainer))
    if case.profile != DEFAULT:
        yield replace(case, profile=DEFAULT)


def smaller_applies(
    step: Apply, plainer_services: Callable[[CaseService], Iterable[CaseService]]
) -> Iterator[Apply]:
    """The step with one Service less, or with one in a plainer form; ``plainer_services``: those forms."""
    for number, service in enumerate(step.services):
        if len(step.services) > 1:
            yield Apply(*without(step.services, number))
        for plainer in plainer_services(service):
            yield Apply(*_with(step.services, number, plainer))


_OWN = {"name", "endpoints", "ports"}
_PLAIN_SERVICE = CaseService(name="")


def _plainer_service(service: CaseService) -> Iterator[CaseService]:
    """Simpler forms of a Service, large cuts first: each costs a lab."""
    for endpoint in service.endpoints:
        yield service.replace(endpoints=(CaseEndpoint(on=endpoint.on),))
        yield service.replace(endpoints=(endpoint,))
    yield service.replace(endpoints=tuple(CaseEndpoint(on=endpoint.on) for endpoint in service.endpoints))
    yield CaseService(name=service.name, type=service.type, ports=service.ports, endpoints=service.endpoints)
    for number, endpoint in enumerate(service.endpoints):
        yield service.replace(endpoints=without(service.endpoints, number))
        for plain in _defaults(endpoint, CaseEndpoint(on=endpoint.on)):
            yield service.replace(endpoints=_with(service.endpoints, number, plain))
    if service.ports != (Port(),):
        yield service.replace(ports=(Port(),))
    if len(service.ports) > 1:
        for number in range(len(service.ports)):
            yield service.replace(ports=without(service.ports, number))
    yield from _defaults(service, _PLAIN_SERVICE)


def _defaults(value: T, plain: T) -> Iterator[T]:
    """The value with one field reset to its default, for each field that differs."""
    for field in fields(value):  # type: ignore[arg-type]
        usual = getattr(plain, field.name)
        if field.name not in _OWN and getattr(value, field.name) != usual:
            yield replace(value, **{field.name: usual})  # type: ignore[type-var]


def without(items: tuple[T, ...], at: int) -> tuple[T, ...]:
    """The items without one, by its index."""
    return items[:at] + items[at + 1 :]


def _with(items: tuple[Step, ...] | tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
