"""A failing world made small: what can be left out, or be plainer, without the failure going away.

All that could be left out next is tried at once, since cases run beside one another at little cost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from kproxy.conformance.binding.bind import InvalidCase
from kproxy.conformance.case import DEFAULT, Apply, Backend, Case, CaseService, Port, Probe, Step
from kproxy.conformance.generate.oracle_answers import with_oracle_answers

Fails = Callable[[Sequence[Case]], Awaitable[Sequence[bool]]]
"""Which of some cases fail, asked all at once."""

T = TypeVar("T")


async def shrink_case(
    case: Case, failing: int, fails: Fails, expired: Callable[[], bool] = lambda: False
) -> Case:
    """The smallest form that was found; ``failing``: the number of a step (from 1) that is not lawful.

    ``expired`` is asked before each round: it ends with what was found so far.
    """
    first = _only_probe(case, failing - 1)
    if not (await fails([first]))[0]:
        first = case
    return await _shrink_step(first, fails, expired)


async def _shrink_step(case: Case, fails: Fails, expired: Callable[[], bool]) -> Case:
    """Take the first of all cuts that fails still, and begin again."""
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
    """The case with one thing less, with the answers that it then has; what makes no sense is left out."""
    for draft in _cuts(case):
        try:
            found = with_oracle_answers(draft)
        except (InvalidCase, KeyError):
            continue
        if found != case and any(isinstance(step, Probe) for step in found.steps):
            yield found


def _cuts(case: Case) -> Iterator[Case]:
    for number, step in enumerate(case.steps):
        yield replace(case, steps=_without(case.steps, number))
        if isinstance(step, Apply):
            for plainer in _plainer_step(step):
                yield replace(case, steps=_with(case.steps, number, plainer))
    if case.profile != DEFAULT:
        yield replace(case, profile=DEFAULT)


def _plainer_step(step: Apply) -> Iterator[Apply]:
    for number, service in enumerate(step.services):
        if len(step.services) > 1:
            yield Apply(*_without(step.services, number))
        for plainer in _plainer_service(service):
            yield Apply(*_with(step.services, number, plainer))


_OWN = {"name", "backends", "ports"}
_PLAIN_SERVICE = CaseService(name="")


def _plainer_service(service: CaseService) -> Iterator[CaseService]:
    """Large cuts first: each costs a lab."""
    for backend in service.backends:
        yield service.replace(backends=(Backend(on=backend.on),))
        yield service.replace(backends=(backend,))
    yield service.replace(backends=tuple(Backend(on=backend.on) for backend in service.backends))
    yield CaseService(name=service.name, type=service.type, ports=service.ports, backends=service.backends)
    for number, backend in enumerate(service.backends):
        yield service.replace(backends=_without(service.backends, number))
        for plain in _defaults(backend, Backend(on=backend.on)):
            yield service.replace(backends=_with(service.backends, number, plain))
    if service.ports != (Port(),):
        yield service.replace(ports=(Port(),))
    if len(service.ports) > 1:
        for number in range(len(service.ports)):
            yield service.replace(ports=_without(service.ports, number))
    yield from _defaults(service, _PLAIN_SERVICE)


def _defaults(value: T, plain: T) -> Iterator[T]:
    """The value with one field as the plain one has it."""
    for field in fields(value):  # type: ignore[arg-type]
        usual = getattr(plain, field.name)
        if field.name not in _OWN and getattr(value, field.name) != usual:
            yield replace(value, **{field.name: usual})  # type: ignore[type-var]


def _without(items: tuple[T, ...], at: int) -> tuple[T, ...]:
    return items[:at] + items[at + 1 :]


def _with(items: tuple[Step, ...] | tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
