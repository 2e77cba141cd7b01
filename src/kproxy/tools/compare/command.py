"""``kproxy compare``: two proxies on the same cluster; `kproxy.cli` parses its options."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.conformance.engine.side_by_side import CannotCompare, run_side_by_side
from kproxy.conformance.generate.from_dump import CopiedInstance, copied_instances
from kproxy.conformance.subjects.subject import InvalidSubject, Subject
from kproxy.documents import TEXT, print_document
from kproxy.lab.topology import Topology
from kproxy.model.network import Protocol
from kproxy.spec.node import NodeFacts
from kproxy.tools.compare import export, show
from kproxy.tools.compare.known_differences import documented_difference
from kproxy.tools.explain.dump import Dump
from kproxy.tools.explain.explanation import ProxySettings, dump_node_facts
from kproxy.tools.lab_session.kernel import restart_in_kernel
from kproxy.tools.lab_session.lab import open_replica
from kproxy.tools.lab_session.layout import CannotCopy, replica_topology
from kproxy.tools.lab_session.options import (
    ReplicaOptions,
    load_dump,
    oracle_settings,
    proxy_setup,
    require_tools,
    resolve_subject,
)

SAME, DIFFERENT, CANNOT = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options: both subjects as ``NAME:MODE``, their programs, and the cluster and kernel that they run on."""

    one: str
    other: str
    binaries: tuple[str, str]
    cluster: ReplicaOptions
    kernel: str = "auto"
    form: str = TEXT
    export: Path | None = None
    arguments: Sequence[str] = ()


def run_compare(options: CompareOptions) -> int:
    """Compare and print; 0: no unknown difference, 1: at least one, 2: the comparison is impossible."""
    begun = time.monotonic()
    try:
        subjects = (
            resolve_subject(options.one, options.binaries[0]),
            resolve_subject(options.other, options.binaries[1]),
        )
        modes = [mode for _, mode in subjects]
        away = restart_in_kernel(options.kernel, modes, options.arguments, options.cluster.iptables)
        if away is not None:
            return away
        return _compare(options, subjects, begun)
    except (CannotCopy, CannotCompare, InvalidSubject) as reason:
        sys.stderr.write(f"kproxy compare: {reason}\n")
        return CANNOT


def _compare(
    options: CompareOptions, subjects: tuple[tuple[Subject, str], tuple[Subject, str]], begun: float
) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    require_tools()
    _can_write(options)
    dump = load_dump(options.cluster)
    lab = replica_topology(dump, options.cluster.nodes, together=True)
    facts = replica_node_facts(dump, lab, oracle_settings(options.cluster))

    def prepare() -> Sequence[tuple[Instance, Probe]]:
        return [(one, one.probe) for one in _probeable(copied_instances(dump.cluster, lab, facts))]

    setups = [proxy_setup(options.cluster, *subject) for subject in subjects]
    modes = (setups[0].mode, setups[1].mode)
    names = tuple(f"{setup.subject.name}:{setup.mode}" for setup in setups)
    line = show.StatusLine(sys.stderr)
    try:
        found = run_side_by_side(
            [(name, partial(open_replica, dump, lab, one)) for name, one in zip(names, setups, strict=True)],
            prepare,
            lambda difference: documented_difference(difference, modes) is not None,
            line,
        )
    finally:
        line.close()
    report = show.ComparisonReport(
        names=(names[0], names[1]),
        modes=modes,
        subjects=(subjects[0][0], subjects[1][0]),
        topology=lab,
        compared=found,
        seconds=time.monotonic() - begun,
    )
    return _report(options, dump, report)


def replica_node_facts(dump: Dump, lab: Topology, settings: ProxySettings) -> dict[str, NodeFacts]:
    """Facts about each node of the lab, whose pods' gateway is an address of its own."""
    facts = {}
    for node, hostname in lab.hostnames.items():
        known = dump.cluster.node(hostname)
        assert known is not None
        more = (*settings.extra_addresses, *lab.pod_gateway[node].values())
        facts[node] = dump_node_facts(known, replace(settings, extra_addresses=more))
    return facts


def _can_write(options: CompareOptions) -> None:
    """Check that outputs can be written, before the run rather than after it. Raises `CannotCopy`."""
    if options.export is not None:
        try:
            options.export.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotCopy(f"--export {options.export}: {error.strerror}") from error


def _report(options: CompareOptions, dump: Dump, report: show.ComparisonReport) -> int:
    if options.form == TEXT:
        sys.stdout.write(show.comparison_text(report))
    else:
        print_document(show.comparison_document(report), options.form)
    for path in _export(options, dump, report):
        sys.stderr.write(f"kproxy conformance run --case-file {path}\n")
    if report.compared.broken and not report.unknown:
        return CANNOT
    return DIFFERENT if report.unknown else SAME


def _export(options: CompareOptions, dump: Dump, report: show.ComparisonReport) -> Iterator[Path]:
    """Write one difference of each kind as a case."""
    if options.export is None:
        return
    text = f"`kproxy compare --a {report.names[0]} --b {report.names[1]}`"
    for name, found in report.samples():
        assert isinstance(found.instance, CopiedInstance)
        path = options.export / f"{name.replace('-', '_')}.py"
        path.write_text(export.case_module(dump, found.instance, f"compare.{name}", f"Differs in {text}."))
        yield path


def _probeable(every: Sequence[CopiedInstance]) -> Sequence[CopiedInstance]:
    """Cases whose protocol this kernel can send."""
    kept = [one for one in every if one.bound.packet.protocol is not Protocol.SCTP]
    if len(kept) == len(every) or _has_sctp():
        return every
    every_port, ports = ({(one.service, one.bound.packet.port) for one in those} for those in (every, kept))
    missing = len(every_port - ports)
    sys.stderr.write(f"kproxy compare: {missing} SCTP ports are left out: this kernel has no SCTP\n")
    return kept


def _has_sctp() -> bool:
    """True if this kernel has SCTP sockets."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).close()
    except OSError:
        return False
    return True
