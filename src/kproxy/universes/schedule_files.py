"""Files of schedules: a Python module that is parsed and never executed, as a file of a case is. Pure but for reading."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kproxy.conformance.binding.bind import InvalidCase
from kproxy.conformance.generate.case_files import CASE_NAMES, NotAllowed, parse_value
from kproxy.conformance.generate.case_source import code_of
from kproxy.universes.history import ObjectHistory
from kproxy.universes.schedule import (
    FaultKind,
    Resource,
    Schedule,
    TimedChange,
    TimedCheck,
    TimedFault,
    TimedFlow,
    TimedProbe,
)

_KINDS = (FaultKind, Resource, Schedule, TimedChange, TimedCheck, TimedFault, TimedFlow, TimedProbe)
_NAMES: Mapping[str, Any] = MappingProxyType(
    {
        **CASE_NAMES,
        **{kind.__name__: kind for kind in _KINDS},
    }
)

_HEAD = '''\
"""{about}"""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family, Protocol
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = {schedule}
'''


class InvalidSchedule(Exception):
    """File that is no schedule, or schedule that cannot be played; the message has the reason."""


def schedule_source(schedule: Schedule, about: str) -> str:
    """Text of a schedule's file, a line for each thing that happens."""
    lines = [f"    seed={schedule.seed},", f"    family={code_of(schedule.family)},"]
    for name in ("changes", "faults", "probes", "flows", "checks"):
        inside = [f"        {code_of(one)}," for one in getattr(schedule, name)]
        lines += [f"    {name}=(", *inside, "    ),"] if inside else []
    return _HEAD.format(about=about, schedule="\n".join(["Schedule(", *lines, ")"]))


def load_schedule(path: Path) -> Schedule:
    """Schedule of a file, which can be played. Raises `InvalidSchedule`."""
    schedule = read_schedule(path)
    check_schedule(schedule)
    return schedule


def read_schedule(path: Path) -> Schedule:
    """Schedule of a file, unchecked: a guest's is its host's. Raises `InvalidSchedule`."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSchedule(f"--replay {path}: {error.strerror}") from error
    except (UnicodeDecodeError, SyntaxError) as error:
        raise InvalidSchedule(f"{path}: {error}") from error
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="SCHEDULE")], value=value):
                return _schedule(value, path)
            case _:
                continue
    raise InvalidSchedule(f"{path}: it assigns no schedule to SCHEDULE")


def _schedule(value: ast.expr, path: Path) -> Schedule:
    try:
        found = parse_value(value, _NAMES)
    except NotAllowed as reason:
        raise InvalidSchedule(f"{path}:{reason.line}: {reason} is not part of a schedule") from reason
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidSchedule(f"{path}: {error}") from error
    if not isinstance(found, Schedule):
        raise InvalidSchedule(f"{path}: SCHEDULE is no schedule")
    return found


def check_schedule(schedule: Schedule) -> None:
    """Raise `InvalidSchedule` where a schedule names what it does not declare, or deletes what is not there."""
    if any(before.done > after.at for before, after in pairwise(schedule.changes)):
        raise InvalidSchedule(
            "this schedule cannot be played: a change begins before the one before it is done"
        )
    try:
        history = ObjectHistory(schedule)
        for probe in schedule.probes:
            history.instance.bound_packet(probe.sender, probe.to)
        for flow in schedule.flows:
            history.instance.bound_packet(flow.sender, flow.to)
        for check in schedule.checks:
            if check.to:
                history.instance.bound_packet(check.sender, check.to)
    except (InvalidCase, KeyError, IndexError, ValueError) as reason:
        raise InvalidSchedule(f"this schedule cannot be played: {reason}") from reason
