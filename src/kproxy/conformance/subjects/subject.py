"""Proxy under test: how it is started, which features it claims, its known deviations.

A subject is data: one of those that come with the package, or a TOML file, whose keys are the fields of `Subject`
with hyphens. ``docs/subjects.md`` documents them all, and the environment of a subject's processes.
"""

from __future__ import annotations

import enum
import importlib.metadata
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from kproxy.conformance.case import OPTIONAL_FEATURES, Case, Feature
from kproxy.conformance.subjects.deviations import Deviation
from kproxy.spec.clauses import CLAUSES

PLACEHOLDERS = {
    "binary": "the path given by --binary (or `binary` in the file)",
    "python": "the Python interpreter that runs the harness",
    "config": "a KubeProxyConfiguration file for this node and profile",
    "kubeconfig": "a kubeconfig file",
    "api_server": "the URL of the lab's API server, as seen from the node",
    "mode": "the mode of this run",
    "node": "the node's name (hostname-override); the same as node_name",
    "node_name": "the node's name",
    "node_ip": "the node's IPv4 address",
    "directory": "a directory of this process's own; `files` are written there",
}

BUNDLED = ("kproxy", "kube-proxy", "kube-router")
DOCUMENTED_SUBJECTS = ("kproxy", "kube-proxy")
"""Subjects whose conformance the specification's pages list clause by clause."""


MODE_BEFORE = {"iptables": "nftables", "nftables": "iptables", "ipvs": "nftables", "userspace": "nftables"}
"""For each mode, another mode whose rules kube-proxy cleans up at its start (KEP-3866): none between iptables and ipvs."""


class InvalidSubject(Exception):
    """Unusable subject file; the message has the file and the reason."""


Arguments = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class FileSystem(enum.Enum):
    """File systems that can be mounted for a subject; the values are those of mount(8)."""

    BPF = "bpf"
    CGROUP = "cgroup2"
    SYSFS = "sysfs"
    TMPFS = "tmpfs"


MountPoint = Annotated[str, msgspec.Meta(pattern="^/")]


class SubjectProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process of a subject. ``ready``: a command that ends with 0 when the next one may start."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]+$")]
    command: Arguments
    ready: tuple[str, ...] = ()


class Implementation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who makes a subject, for results that others cite.

    ``contact``: a person, a list or a page.  ``version``: empty for the first line that `version-command` prints.
    ``distribution``: an installed distribution of Python, whose links `Source` and `Issues` stand for an empty url and contact.
    """

    project: str = ""
    url: str = ""
    version: str = ""
    contact: str = ""
    distribution: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A service proxy to be judged; a file's keys are these fields, with hyphens."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    modes: Arguments
    command: Arguments = ()
    processes: tuple[SubjectProcess, ...] = ()
    version_command: tuple[str, ...] = ()
    cleanup_command: tuple[str, ...] = ()
    outlived_by: str = ""
    """Text in the command line of processes that the proxy starts and that outlive it: a restart leaves them alone."""
    binary: str = ""
    min_sync_period: str = "10ms"
    features: frozenset[Feature] = frozenset(Feature) - OPTIONAL_FEATURES
    optional: Mapping[str, frozenset[Feature]] = field(default_factory=dict)
    """By mode: features beyond those."""
    without: Mapping[str, frozenset[Feature]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[MountPoint, FileSystem] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    implementation: Implementation = field(default_factory=Implementation)

    @property
    def all_processes(self) -> tuple[SubjectProcess, ...]:
        """Processes on each node, in the order in which they are started."""
        return self.processes or (SubjectProcess(name="proxy", command=self.command),)

    @property
    def runs_binary(self) -> bool:
        """True if its commands have the placeholder ``{binary}``."""
        arguments = [
            argument for program in self.all_processes for argument in (*program.command, *program.ready)
        ]
        return any("{binary}" in argument for argument in arguments)

    def claimed_features(self, mode: str) -> frozenset[Feature]:
        """Features that it claims in a mode: of those that its file claims, all that it has the means for."""
        claimed = (self.features | self.optional.get(mode, frozenset())) - self.without.get(mode, frozenset())
        if self.mode_before(mode) is None:
            claimed -= {Feature.MODE_CHANGE}
        if not self.cleanup_command:
            claimed -= {Feature.CLEANUP}
        return claimed

    def missing_features(self, case: Case, mode: str) -> frozenset[Feature]:
        """Features of the case that the subject does not claim in that mode."""
        return case.features - self.claimed_features(mode)

    def mode_before(self, mode: str) -> str | None:
        """Mode whose rules a proxy that starts in this one has to remove; None where the subject has none."""
        before = MODE_BEFORE.get(mode)
        return before if before in self.modes else None


def load_subject(name_or_path: str, binary: str = "") -> Subject:
    """Subject by the name of one that comes with the package, or from a TOML file.

    Raises `InvalidSubject`.
    """
    if name_or_path in BUNDLED:
        return _bundled_subject(name_or_path, binary)
    try:
        text = Path(name_or_path).read_text()
    except OSError as error:
        known = ", ".join(BUNDLED)
        message = (
            f"proxy {name_or_path}: {error.strerror}; give one of {known}, or the path of a subject file"
        )
        raise InvalidSubject(message) from error
    except UnicodeDecodeError as error:
        raise InvalidSubject(f"proxy {name_or_path}: that is no text, and a subject file is TOML") from error
    return _subject(text, name_or_path, binary)


@cache
def _bundled_subject(name: str, binary: str) -> Subject:
    return _subject(importlib.resources.files(__package__).joinpath(f"{name}.toml").read_text(), name, binary)


def _subject(text: str, name_or_path: str, binary: str) -> Subject:
    subject = subject_from_toml(text, name_or_path, binary)
    return replace(subject, implementation=_with_links(subject.implementation))


def _with_links(about: Implementation) -> Implementation:
    """Fill in url and contact by the metadata of a distribution; one built where the repository is unknown has none."""
    try:
        metadata = importlib.metadata.metadata(about.distribution) if about.distribution else None
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    if metadata is None:
        return about
    links = dict(link.split(", ", 1) for link in metadata.get_all("Project-URL") or ())
    url, contact = about.url or links.get("Source", ""), about.contact or links.get("Issues", "")
    return msgspec.structs.replace(about, url=url, contact=contact)


def check_mode(subject: Subject, mode: str) -> None:
    """Raise `InvalidSubject` when a subject has no such mode; every one has the empty one."""
    if mode and mode not in subject.modes:
        raise InvalidSubject(f"--mode {mode}: {subject.name} has {', '.join(subject.modes)}")


def subject_from_toml(text: str, where: str, binary: str = "") -> Subject:
    """Subject from TOML text; ``where`` is for messages. Raises `InvalidSubject`."""
    try:
        subject = _convert(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidSubject(f"{where}: {error}{_hint(str(error))}") from error
    if problem := _problem(subject, binary):
        raise InvalidSubject(f"{where}: {problem}")
    return replace(subject, binary=binary) if binary else subject


def _problem(subject: Subject, binary: str) -> str:
    """Error that concerns several keys; empty for none."""
    names = [program.name for program in subject.processes]
    if not subject.command and not subject.processes:
        return "how it is started is missing: give `command`, or `[[processes]]`"
    if subject.command and subject.processes:
        return "`command` is for one process, `[[processes]]` for several: give one of them"
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"several processes are called {', '.join(twice)}"
    for table, by_mode in (("without", subject.without), ("optional", subject.optional)):
        if strange := sorted(by_mode.keys() - set(subject.modes)):
            return f"[{table}] {', '.join(strange)}: modes are {', '.join(subject.modes)}"
    if problem := _unknown_name(subject.deviations, subject.modes):
        return problem
    if subject.runs_binary and not (subject.binary or binary):
        return "needs the program's path: give --binary PATH, or `binary` in the file"
    return ""


def _unknown_name(deviations: Iterable[Deviation], modes: Sequence[str]) -> str:
    """Error of a deviation that names an unknown mode or clause; empty for none."""
    for number, deviation in enumerate(deviations):
        if deviation.mode not in {"", *modes}:
            return f"$.deviations[{number}]: modes are {', '.join(modes)}, not {deviation.mode}"
        named = {name for excuse in deviation.excuses for name in excuse.clauses}
        named |= {name for excuse in deviation.universes for name in excuse.clauses}
        if strange := sorted(named.difference(CLAUSES)):
            return f"$.deviations[{number}]: no clause is called {', '.join(strange)}; a finding names those that it breaks"
    return ""


def _convert(document: Mapping[str, object]) -> Subject:
    known = [entry.name.replace("_", "-") for entry in fields(Subject)]
    unknown = sorted(document.keys() - set(known))
    if unknown:
        raise msgspec.ValidationError(f"unknown keys {', '.join(unknown)}; known are {', '.join(known)}")
    try:
        return msgspec.convert({key.replace("-", "_"): value for key, value in document.items()}, Subject)
    except msgspec.ValidationError as error:
        message, _, place = str(error).rpartition("$")
        raise msgspec.ValidationError(f"{message}${place.replace('_', '-')}" if message else place) from error


def _hint(problem: str) -> str:
    """Hint on the correct form, where one helps."""
    if "Expected `array`, got `str`" in problem:
        return '; a command is a list of arguments, as ["my-proxy", "--config={config}"]'
    whole = r"(unknown field `(case|clauses?|steps)`|required field `excuses`) - at `\$\.deviations\[\d+\]`"
    if re.search(whole, problem):
        return '; it lists what it excuses: excuses = [{ case = "group.name", clauses = ["group.clause"], steps = [2] }]'
    if "matching regex '^/' - at `key` in `$.mounts`" in problem:
        return "; a mount point is an absolute path"
    lists = {"$.mounts": FileSystem, "$.features": Feature, "$.without": Feature, "$.optional": Feature}
    for place, known in lists.items():
        if "enum value" in problem and place in problem:
            return f"; known are {', '.join(one.value for one in known)}"
    return ""


def fill_placeholders(template: str, values: Mapping[str, str]) -> str:
    """Template with its placeholders replaced; other braces stay."""
    for name in PLACEHOLDERS:
        template = template.replace("{" + name + "}", values.get(name, ""))
    return template
