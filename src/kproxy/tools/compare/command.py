"""``kproxy compare``: two proxies on the same cluster; `kproxy.cli` parses its options."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kproxy.conformance.subjects.subject import InvalidSubject, Subject
from kproxy.model.network import Protocol
from kproxy.tools.compare import export, show
from kproxy.tools.compare.expectations import replica_oracle
from kproxy.tools.compare.known_differences import documented_difference
from kproxy.tools.compare.query import CannotCompare, compare_proxies
from kproxy.tools.compare.worker import ReplicaWorker, WorkerJob
from kproxy.tools.explain.dump import Dump
from kproxy.tools.lab_session.frontend_probes import FrontendProbe, frontend_probes
from kproxy.tools.lab_session.kernel import restart_in_kernel
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
    json: str = ""
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
    probes = _probeable(frontend_probes(dump, lab))
    judge = replica_oracle(dump, lab, oracle_settings(options.cluster))
    job = WorkerJob(dump, lab, probes)
    one, other = (proxy_setup(options.cluster, *subject) for subject in subjects)
    line = show.StatusLine(sys.stderr)
    left = ReplicaWorker(job, one)
    try:
        right = ReplicaWorker(job, other)
        try:
            expectations = [judge.expect(question) for question in probes]
            modes = (one.mode, other.mode)
            found = compare_proxies(
                (left, right),
                probes,
                expectations,
                lambda d: documented_difference(d, modes) is not None,
                line,
            )
        finally:
            right.close()
    finally:
        left.close()
        line.close()
    report = show.ComparisonReport(
        names=(left.name, right.name),
        modes=(one.mode, other.mode),
        topology=lab,
        compared=found,
        seconds=time.monotonic() - begun,
    )
    return _report(options, dump, report)


def _can_write(options: CompareOptions) -> None:
    """Check that outputs can be written, before the run rather than after it. Raises `CannotCopy`."""
    place = Path(options.json)
    if options.json not in {"", "-"} and (place.is_dir() or not place.absolute().parent.is_dir()):
        raise CannotCopy(f"--json {place}: that is no file in a folder that exists")
    if options.export is not None:
        try:
            options.export.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotCopy(f"--export {options.export}: {error.strerror}") from error


def _report(options: CompareOptions, dump: Dump, report: show.ComparisonReport) -> int:
    if options.json:
        data = msgspec.json.format(msgspec.json.encode(show.comparison_document(report)), indent=2) + b"\n"
        if options.json == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(options.json).write_bytes(data)
    if options.json != "-":
        sys.stdout.write(show.comparison_text(report))
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
        path = options.export / f"{name.replace('-', '_')}.py"
        path.write_text(
            export.case_module(dump, report.topology, found, f"compare.{name}", f"Differs in {text}.")
        )
        yield path


def _probeable(every: Sequence[FrontendProbe]) -> tuple[FrontendProbe, ...]:
    """Probes whose protocol this kernel can send."""
    if _has_sctp():
        return tuple(every)
    kept = tuple(question for question in every if question.packet.protocol is not Protocol.SCTP)
    if len(kept) < len(every):
        ports = {(question.service, question.packet.port) for question in every} - {
            (question.service, question.packet.port) for question in kept
        }
        sys.stderr.write(f"kproxy compare: {len(ports)} SCTP ports are left out: this kernel has no SCTP\n")
    return kept


def _has_sctp() -> bool:
    """True if this kernel has SCTP sockets."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).close()
    except OSError:
        return False
    return True
