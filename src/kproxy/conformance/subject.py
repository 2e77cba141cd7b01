"""The proxy under test: how it is started, what it claims, where it is known to deviate.

A subject is data: one of the two that come with the package, or a TOML file:

    name = "my-proxy"
    modes = ["iptables"]
    command = ["{binary}", "--config={config}"]        # see `PLACEHOLDERS`
    version-command = ["{binary}", "--version"]
    features = ["NodePort", "IPv6"]                     # `kproxy.conformance.case.Feature` values; default all
    [environment]
    GODEBUG = "x509ignoreCN=0"
    [files]                                             # more files, written before each start
    "settings.json" = '{"server": "{api_server}", "node": "{node_name}"}'
    [[deviations]]
    case = "affinity.*"                                 # a glob over case ids
    mode = "ipvs"                                       # leave out for all modes
    link = "https://example.com/issue/1"
    text = "what it does instead"
"""

from __future__ import annotations

import fnmatch
import importlib.resources
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Deviation:
    """A case this subject is known to fail, with a link to why."""

    case: str
    link: str
    text: str
    mode: str = ""

    def covers(self, case: Case, mode: str) -> bool:
        """Whether a failure of that case in that mode is the known one."""
        return self.mode in {"", mode} and fnmatch.fnmatchcase(case.id, self.case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A service proxy to be judged."""

    name: str
    modes: tuple[str, ...]
    command: tuple[str, ...]
    version_command: tuple[str, ...] = ()
    binary: str = ""
    min_sync_period: str = "10ms"
    features: frozenset[Feature] = frozenset(Feature)
    environment: Mapping[str, str]
    files: Mapping[str, str]
    deviations: tuple[Deviation, ...] = ()

    def lacks(self, case: Case) -> frozenset[Feature]:
        """Features of the case that the subject does not claim."""
        return case.features - self.features

    def deviation(self, case: Case, mode: str) -> Deviation | None:
        """The known deviation that covers a case, if any."""
        return next((d for d in self.deviations if d.covers(case, mode)), None)


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
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = f"{where}: {error}"
        raise BadSubject(message) from error
    unknown = document.keys() - _KNOWN
    if unknown:
        message = f"{where}: unknown keys {sorted(unknown)}; known are {sorted(_KNOWN)}"
        raise BadSubject(message)
    subject = _build(document, where, binary)
    if not subject.binary and any("{binary}" in part for part in subject.command):
        message = f"{where}: needs the program's path: give --binary PATH, or `binary` in the file"
        raise BadSubject(message)
    return subject


_KNOWN = frozenset(
    {
        "name",
        "modes",
        "command",
        "version-command",
        "binary",
        "min-sync-period",
        "features",
        "environment",
        "files",
        "deviations",
    }
)


def _build(document: Mapping[str, Any], where: str, binary: str) -> Subject:
    try:
        return Subject(
            name=document["name"],
            modes=tuple(document["modes"]),
            command=tuple(document["command"]),
            version_command=tuple(document.get("version-command", ())),
            binary=binary or document.get("binary", ""),
            min_sync_period=document.get("min-sync-period", "10ms"),
            features=_features(document.get("features"), where),
            environment=document.get("environment", {}),
            files=document.get("files", {}),
            deviations=tuple(Deviation(**entry) for entry in document.get("deviations", ())),
        )
    except KeyError as error:
        message = f"{where}: {error.args[0]!r} is missing"
        raise BadSubject(message) from error
    except TypeError as error:
        message = f"{where}: deviations: {error}; give case, link, text and perhaps mode"
        raise BadSubject(message) from error


def _features(names: list[str] | None, where: str) -> frozenset[Feature]:
    if names is None:
        return frozenset(Feature)
    known = {feature.value: feature for feature in Feature}
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"{where}: unknown features {unknown}; known are {sorted(known)}"
        raise BadSubject(message)
    return frozenset(known[name] for name in names)


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with its placeholders replaced; other braces stay."""
    for name in PLACEHOLDERS:
        template = template.replace("{" + name + "}", values.get(name, ""))
    return template
