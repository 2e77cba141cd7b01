"""Loader of case files, as `kproxy.conformance.generate.case_source` writes them: parsed, never executed.

Such files come with reports from strangers. So only what makes a case is accepted: the names of
`kproxy.conformance.case`, of its enumerations and profiles, and literals; anything else is refused.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kproxy.conformance import case as language
from kproxy.conformance.binding.bind import Instance, InvalidCase, bind_cases
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import Case, CheckHealth, ContinuousProbe, Delete, Open, Ping, Probe, Step
from kproxy.conformance.cases import profiles
from kproxy.model.network import Family, Protocol
from kproxy.spec.outcome import SourceIP

CASE_NAMES: Mapping[str, Any] = MappingProxyType(
    {
        **{name: getattr(language, name) for name in language.__all__},
        "Family": Family,
        "Protocol": Protocol,
        "SourceIP": SourceIP,
        "frozenset": frozenset,
    }
)

_OLD_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Act": "UnjudgedAction",
        "Backend": "CaseEndpoint",
        "Bystanders": "UnrelatedEntries",
        "CROWD": "UNUSED_HOSTS",
        "Checkup": "HealthRequest",
        "Deaf": "WatchFault",
        "Deafen": "StopListening",
        "GainAddress": "AddNodeAddress",
        "Hold": "Open",
        "Leave": "StartNodeDeletion",
        "MendWrites": "AllowWrites",
        "Place": "SourceRange",
        "ReachedBackend": "ReachedEndpoint",
        "Relabel": "SetZone",
        "STILL": "SAME_ENDPOINT",
        "Seen": "SymbolicOutcome",
        "Service": "CaseService",
        "Source": "SourceIP",
        "Steady": "ContinuousProbe",
        "Still": "SameEndpoint",
        "Taint": "SetTaints",
        "Told": "EndpointCountLocation",
        "Unheard": "DuringWatchFault",
        "Use": "Send",
        "backend_of": "endpoint_target",
        "backend_target": "endpoint_target",
    }
)
"""Former names of a case's classes, in files of earlier versions."""

_OLD_PARTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "CaseService": {
            "backends": "endpoints",
            "raw_external_ips": "literal_external_ips",
            "raw_source_ranges": "literal_source_ranges",
            "share_cluster_ip_of": "same_cluster_ip_as",
            "share_vip_of": "same_vip_as",
        },
        "CheckHealth": {"told": "count_in"},
        "CheckProxy": {"within": "timeout"},
        "DuringWatchFault": {"deaf": "fault"},
        "Open": {"port_of": "same_port_as"},
        "Probe": {
            "at_once": "first_packet_only",
            "bare": "init_chunk_only",
            "many_homes": "multihomed",
            "oversize": "payload_bytes",
            "redrawn": "source_port_changed",
            "roams": "rebalances",
            "sticks": "sticky_group",
        },
        "Profile": {"alone": "isolated", "detect": "detect_mode"},
        "ReachedEndpoint": {"of": "service"},
        "Restart": {"meanwhile": "while_down"},
        "SameEndpoint": {"STILL": "SAME_ENDPOINT"},
        "TargetKind": {"BACKEND": "ENDPOINT", "NODE_PORT_GAINED": "NODE_PORT_ADDED_ADDRESS"},
        "UnrelatedEntries": {
            "backend": "endpoint",
            "beside": "other_service",
            "near": "service",
            "on": "endpoint",
        },
        "Vip": {"of": "node"},
        "WatchFault": {"CUT": "CONNECTION_RESET", "LATE": "DELAYED"},
        "delivered_to": {"of": "service"},
        "endpoint_target": {"web": "service"},
    }
)
"""Former names of keyword arguments and members, by the name that has them."""


class InvalidCaseFile(Exception):
    """File that is no case; the message has the line and the reason."""


def load_case_file(path: str) -> Case:
    """Case that a file assigns to ``WORLD``. Raises `InvalidCaseFile`."""
    try:
        return parse_case_file(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise InvalidCaseFile(f"--case-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidCaseFile(f"--case-file {path}: that is no text, and a case file is Python") from error


def parse_case_file(text: str, path: str) -> Case:
    """Case of a module's text. Raises `InvalidCaseFile`."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise InvalidCaseFile(f"{path}:{error.lineno}: {error.msg}") from error
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="WORLD")], value=value):
                return _case(value, path)
            case _:
                continue
    raise InvalidCaseFile(f"{path}: it assigns no case to WORLD")


def _case(value: ast.expr, path: str) -> Case:
    try:
        found = parse_value(value)
    except NotAllowed as reason:
        raise InvalidCaseFile(f"{path}:{reason.line}: {reason} is not part of a case") from reason
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidCaseFile(f"{path}: {error}") from error
    if not isinstance(found, Case):
        raise InvalidCaseFile(f"{path}: WORLD is no case")
    for instance in bind_cases([found]):
        _check_binding(instance, path)
    return found


def _check_binding(instance: Instance, path: str) -> None:
    """Bind the case, as a run would. Raises `InvalidCaseFile` where a name has no referent."""
    world, flows = World(instance), set[str]()
    for number, step in enumerate(instance.case.steps, 1):
        try:
            if problem := _problem(world, flows, step):
                raise InvalidCaseFile(f"{path}: step {number}: {problem}")
            world.apply_step(step)
            _check_step(instance, step)
        except InvalidCase as reason:
            raise InvalidCaseFile(f"{path}: step {number}: {reason}") from reason
        except (KeyError, IndexError) as reason:
            message = f"{path}: step {number}: no pod, node or address of the lab is called {reason}"
            raise InvalidCaseFile(message) from reason


def _problem(world: World, flows: set[str], step: Step) -> str:
    """Text of an impossible order of steps; ``flows``: those opened before."""
    if isinstance(step, Open):
        flows.add(step.flow)
    if (flow := getattr(step, "flow", None)) is not None and flow not in flows:
        return f"flow {flow!r} is not opened before it is used"
    if isinstance(step, Delete):
        key = ("Service", world.instance.namespace, step.service.name)
        return (
            ""
            if key in world.objects
            else f"it deletes Service {step.service.name!r}, which no step before it applies"
        )
    return ""


def _check_step(instance: Instance, step: Step) -> None:
    if not isinstance(step, Probe | ContinuousProbe | Open | Ping | CheckHealth):
        return
    instance.bound_packet(step.sender, step.to)
    if isinstance(step.expect, frozenset):
        instance.outcomes(step.expect, step.to)


class NotAllowed(Exception):
    """Expression that is no value of a case; ``line``: where it is."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__(ast.unparse(node)[:60])
        self.line = node.lineno


def parse_value(node: ast.expr, names: Mapping[str, Any] = CASE_NAMES) -> Any:  # noqa: ANN401 (whatever a case is made of)
    """Value of an expression made of these names and literals. Raises `NotAllowed`."""
    value_of = partial(parse_value, names=names)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return (tuple if isinstance(node, ast.Tuple) else set)(map(value_of, parts))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return value_of(left) | value_of(right)
        case ast.Name(id=name) if _current(name) in names:
            return names[_current(name)]
        case ast.Attribute(value=ast.Name(id="profiles"), attr=name) if name in profiles.__all__:
            return getattr(profiles, name)
        case ast.Attribute(value=ast.Name(id=name), attr=member) if _current(name) in names:
            return _member(node, names[_current(name)], _current_part(name, member))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if _current(name) in names:
            values = {_current_part(name, k.arg): value_of(k.value) for k in keywords if k.arg}
            return names[_current(name)](*map(value_of, args), **values)
        case _:
            raise NotAllowed(node)


def _current(name: str) -> str:
    return _OLD_NAMES.get(name, name)


def _current_part(owner: str, name: str) -> str:
    return _OLD_PARTS.get(_current(owner), {}).get(name, name)


def _member(node: ast.expr, owner: object, name: str) -> enum.Enum:
    if isinstance(owner, enum.EnumMeta) and name in owner.__members__:
        member: enum.Enum = owner.__members__[name]
        return member
    raise NotAllowed(node)
