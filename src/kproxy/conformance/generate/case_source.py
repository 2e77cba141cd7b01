"""Python module of a case, which can be committed once the case is understood. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from kproxy.conformance.case import Apply, Case, DuringWatchFault, Lawful, Profile, ReachedEndpoint
from kproxy.conformance.cases import profiles
from kproxy.spec.outcome import Failure

_HEAD = '''\
"""{origin}

The answers are the oracle's.  Before this is kept: read the sources of its clauses, write the answers by hand,
give it a name that states what it shows, and move it to `kproxy.conformance.cases`.
"""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.conformance.cases import profiles
from kproxy.model.network import Family, Protocol
from kproxy.spec.outcome import SourceIP

WORLD = {case}
'''


def case_source(case: Case, origin: str) -> str:
    """Text of the module; ``origin``: a sentence on where the case comes from."""
    return _HEAD.format(origin=origin, case=code_of(case))


def code_of(value: object) -> str:
    """Expression of a case, or of any value in one: a dataclass, an enumeration's member, a tuple, a literal."""
    match value:
        case Case():
            return _case(value)
        case Apply() | DuringWatchFault():
            parts = value.services if isinstance(value, Apply) else (value.fault, *value.changes)
            return f"{type(value).__name__}({', '.join(map(code_of, parts))})"
        case Profile() if value in vars(profiles).values():
            return f"profiles.{_profile_name(value)}"
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case tuple():
            return f"({', '.join(map(code_of, value))}{',' if len(value) == 1 else ''})"
        case frozenset():
            return f"frozenset({{{', '.join(sorted(map(code_of, value)))}}})" if value else "frozenset()"
        case _ if is_dataclass(value):
            return _constructor(value)
        case _:
            return repr(value)


def _profile_name(profile: Profile) -> str:
    return next(name for name, value in vars(profiles).items() if value == profile)


def _constructor(value: Any) -> str:  # noqa: ANN401 (a dataclass of any kind)
    """Constructor call of a dataclass, without fields that have their defaults."""
    shown = []
    for field in fields(value):
        own = getattr(value, field.name)
        if field.name == "expect" and isinstance(own, frozenset):
            shown.append(f"expect={_lawful(own)}")
        elif own != field.default:
            shown.append(f"{field.name}={code_of(own)}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _lawful(lawful: Lawful) -> str:
    """Expression of lawful outcomes as an author writes it: ``delivered_to("a1") | DROPPED``."""
    parts = [one.name for one in sorted((o for o in lawful if isinstance(o, Failure)), key=str)]
    reached = [one for one in lawful if isinstance(one, ReachedEndpoint)]
    parts += sorted(_among_many(one) for one in reached if one.many)
    groups: dict[tuple[Any, ...], list[str]] = {}
    for one in reached:
        if not one.many:
            groups.setdefault((one.source, one.shift, one.service), []).append(one.on)
    for (seen, shift, of), names in sorted(groups.items(), key=str):
        extra = [
            f", source={code_of(seen)}",
            f", shift={shift}" if shift else "",
            f", service={of!r}" if of else "",
        ]
        parts.append(f"delivered_to({_quoted(names)}{''.join(extra)})")
    return " | ".join(parts)


def _among_many(one: ReachedEndpoint) -> str:
    return f"delivered_to_many({one.on!r}, {one.many}, first={one.first}, source={code_of(one.source)})"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _case(case: Case) -> str:
    lines = [f"    {case.id!r},", f"    {case.about!r},"]
    lines += [f"    {code_of(step)}," for step in case.steps]
    lines.append(f"    clauses={{{_quoted(case.clauses)}}},")
    for name in ("features", "profile", "families"):
        own = getattr(case, name)
        if own:
            lines.append(f"    {name}={code_of(own)},")
    return "\n".join(["case(", *lines, ")"])
