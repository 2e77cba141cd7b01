"""Environment of a run: facts about this machine for the report, and missing prerequisites with remedies."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

from kproxy import __version__
from kproxy.conformance.case import Feature
from kproxy.conformance.subjects.subject import Subject, fill_placeholders
from kproxy.lab import kube, sandbox
from kproxy.lab.kernels.abilities import Ability, KernelName, probe_abilities
from kproxy.lab.kernels.current import kernel_here, time_here
from kproxy.lab.kube.assets import Assets
from kproxy.lab.processes import Xtables

TOOLS = {"ip": "iproute2", "nft": "nftables", "conntrack": "conntrack", "setpriv": "util-linux"}
"""Programs the lab runs, and the Debian package of each."""

ISOLATED = "network, processes, mounts"

_LARGEST_ROOTLESS = 12


class Unmountable(Exception):
    """A subject's mounts are not possible here; the message has the reason."""


def missing_prerequisites() -> list[str]:
    """Reasons why the netns testbed cannot run here, each with the remedy; empty when it can."""
    if sys.platform != "linux":
        return [f"network namespaces need Linux, this is {sys.platform}: use --testbed simulator"]
    found = []
    if os.geteuid() != 0:
        found.append("network namespaces need root: run it with sudo")
    missing = [package for tool, package in TOOLS.items() if _which(tool) is None]
    missing += ["iptables"] if _which(Xtables.NFT.value) is None else []
    if missing:
        found.append(f"programs are missing: apt-get install {' '.join(missing)}")
    return found


def missing_program(subject: Subject) -> str:
    """Reason why the subject's program cannot be started; empty when it can."""
    if not subject.binary or _which(subject.binary):
        return ""
    return f"{subject.binary} is not a program that can be run: give --binary PATH"


def missing_api_server(kind: str) -> str:
    """Reason why there is no API server of that kind; empty when there is."""
    try:
        assets(kind)
    except kube.MissingAssets as reason:
        return f"--apiserver {kind}: {reason}"
    return ""


def assets(kind: str) -> Assets | None:
    """Programs of a real API server (``kube``); None for the lab's own. Raises `MissingAssets`."""
    return kube.find_assets() if kind == "kube" else None


def iptables_variant(name: str) -> Xtables:
    """Variant of iptables called ``nft`` or ``legacy``; ``auto`` is nft where this kernel has it."""
    if name == "auto":
        return (
            Xtables.LEGACY if probe_abilities([Ability.IPTABLES_NFT])[Ability.IPTABLES_NFT] else Xtables.NFT
        )
    return Xtables[name.upper()]


def largest_lab() -> int:
    """Largest number of cases in a lab here, 0 for any number.

    iptables-nft sends a transaction as one message. A user namespace's root may not set a larger send buffer
    (SO_SNDBUFFORCE, socket(7)), and the usual ``net.core.wmem_default``, 208 KiB, holds some 450 rules: those of 25
    cases.
    """
    return _LARGEST_ROOTLESS if kernel_here() is KernelName.ROOTLESS else 0


def isolation(subject: Subject) -> str:
    """Namespaces that a subject has of its own on a node, as text; raises `Unmountable` when its mounts are not possible."""
    if not (reason := sandbox.sandbox_unavailable()):
        return ISOLATED
    if subject.mounts:
        raise Unmountable(f"[mounts]: {reason}")
    return f"network; {reason}"


def claimed_features(subject: Subject) -> str:
    """Features that a subject claims, as text."""
    if subject.features == frozenset(Feature):
        return "every feature"
    return ", ".join(sorted(feature.value for feature in subject.features)) or "no feature"


def environment_facts(subject: Subject, tools: Xtables, programs: Assets | None = None) -> dict[str, str]:
    """Facts that a result depends on, mostly versions."""
    return {
        "testbed": "netns",
        "kproxy": __version__,
        "kernel": platform.release(),
        "kernel-choice": kernel_here().value,
        "time": time_here().value,
        "python": platform.python_version(),
        "iptables": _version(tools.value, "iptables", "--version"),
        "nft": _version("nft", "--version"),
        "apiserver": _version(str(programs.kube_apiserver), "--version") if programs else "lab",
        "isolation": isolation(subject),
        "claims": claimed_features(subject),
        "subject": _version(*_subject_version(subject)) if subject.version_command else "unknown",
    }


def _subject_version(subject: Subject) -> list[str]:
    values = {"binary": subject.binary, "python": sys.executable}
    return [fill_placeholders(part, values) for part in subject.version_command]


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _version(program: str, *arguments: str) -> str:
    path = _which(program)
    if path is None:
        return "missing"
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"
