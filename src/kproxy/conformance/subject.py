"""The proxy under test: how it is started, what it claims, where it is known to deviate.

A subject is data: one of the two that come with the package, or a TOML file:

    name = "my-proxy"
    modes = ["iptables"]
    command = ["{binary}", "--config={config}"]        # see `PLACEHOLDERS`
    version-command = ["{binary}", "--version"]
    features = ["NodePort", "IPv6"]                     # `kproxy.conformance.case.Feature` values; default all
    [without]                                           # what single modes do not have
    nftables = ["localhostNodePorts"]
    [environment]
    GODEBUG = "x509ignoreCN=0"
    [files]                                             # more files, written before each start
    "settings.json" = '{"server": "{api_server}", "node": "{node_name}"}'
    [[deviations]]
    case = "affinity.*"                                 # a glob over case ids
    mode = "ipvs"                                       # leave out for all modes
    clause = "affinity.client-ip.sticks"                          # leave out for all; for generated worlds (case = "fuzz.*")
    link = "https://example.com/issue/1"
    text = "what it does instead"
"""

from __future__ import annotations

import fnmatch
import importlib.resources
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

import msgspec

from kproxy.conformance.case import Case, Feature

PLACEHOLDERS = {
    "binary": "the path given by --binary (or `binary` in the file)",
    "python": "the Python interpreter that runs the harness",
    "config": "a KubeProxyConfiguration file for this node and profile",
    "kubeconfig": "a kubeconfig file",
    "api_server": "the URL of the lab's API server, as seen from the node",
    "mode": "the mode asked for",
    "node": "the node's name (hostname-override); the same as node_name",
    "node_name": "the node's name",
    "node_ip": "the node's IPv4 address",
    "directory": "a directory of this process's own; `files` are written there",
}

BUNDLED = ("kproxy", "kube-proxy")


class BadSubject(Exception):
    """A subject file that cannot be used; says what is wrong and where."""


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case this subject is known to fail, with a link to why; with ``clause``, only where that clause is cited."""

    case: str
    clause: str = ""
    link: Annotated[str, msgspec.Meta(pattern="^https?://")]
    text: Annotated[str, msgspec.Meta(min_length=1)]
    mode: str = ""

    def covers(self, case: Case, mode: str, cited: Sequence[Collection[str]] = ()) -> bool:
        """Whether a failure of that case in that mode is the known one; ``cited``: by each finding."""
        same = self.mode in {"", mode} and fnmatch.fnmatchcase(case.id, self.case)
        return same and (not self.clause or all(self.clause in clauses for clauses in cited))


Words = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A service proxy to be judged; a file's keys are these fields, with hyphens."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    modes: Words
    command: Words
    version_command: tuple[str, ...] = ()
    binary: str = ""
    min_sync_period: str = "10ms"
    features: frozenset[Feature] = frozenset(Feature)
    without: Mapping[str, frozenset[Feature]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()

    def lacks(self, case: Case, mode: str) -> frozenset[Feature]:
        """Features of the case that the subject does not claim in that mode."""
        claimed = self.features - self.without.get(mode, frozenset())
        return case.features - claimed

    def deviation(self, case: Case, mode: str, cited: Sequence[Collection[str]] = ()) -> Deviation | None:
        """The known deviation that covers a case and the clauses of its findings, if any."""
        return next((d for d in self.deviations if d.covers(case, mode, cited)), None)


def load(name_or_path: str, binary: str = "") -> Subject:
    """A subject by the name of one that comes with the package, or from a TOML file.

    Raises `BadSubject`.
    """
    if name_or_path in BUNDLED:
        text = (
            importlib.resources.files("kproxy.conformance")
            .joinpath(f"subjects/{name_or_path}.toml")
            .read_text()
        )
    else:
        try:
            text = Path(name_or_path).read_text()
        except OSError as error:
            known = ", ".join(BUNDLED)
            message = f"--proxy {name_or_path}: {error.strerror}; give one of {known}, or the path of a subject file"
            raise BadSubject(message) from error
    return parse(text, name_or_path, binary)


def parse(text: str, where: str, binary: str = "") -> Subject:
    """A subject from TOML text; ``where`` is for messages.  Raises `BadSubject`."""
    try:
        subject = _convert(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSubject(f"{where}: {error}{_hint(str(error))}") from error
    if binary:
        subject = replace(subject, binary=binary)
    if not subject.binary and any("{binary}" in part for part in subject.command):
        message = f"{where}: needs the program's path: give --binary PATH, or `binary` in the file"
        raise BadSubject(message)
    return subject


def _convert(document: Mapping[str, object]) -> Subject:
    known = [entry.name.replace("_", "-") for entry in fields(Subject)]
    unknown = sorted(document.keys() - set(known))
    if unknown:
        raise msgspec.ValidationError(f"unknown keys {', '.join(unknown)}; known are {', '.join(known)}")
    return msgspec.convert({key.replace("-", "_"): value for key, value in document.items()}, Subject)


def _hint(problem: str) -> str:
    """What would have been right, where a list of it helps."""
    if "enum value" in problem:
        return f"; features are {', '.join(feature.value for feature in Feature)}"
    return ""


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with its placeholders replaced; other braces stay."""
    for name in PLACEHOLDERS:
        template = template.replace("{" + name + "}", values.get(name, ""))
    return template
