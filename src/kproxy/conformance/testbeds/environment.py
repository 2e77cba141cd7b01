"""Environment of a run: facts about this machine for the report, and missing prerequisites with remedies."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

from kproxy import __version__
from kproxy.conformance.case import OPTIONAL_FEATURES, Case, Feature
from kproxy.conformance.subjects.subject import MODE_BEFORE, Subject, fill_placeholders
from kproxy.lab import kube, sandbox
from kproxy.lab.kernels.abilities import Ability, KernelName, probe_abilities
from kproxy.lab.kernels.choice import Need
from kproxy.lab.kernels.current import kernel_here, time_here
from kproxy.lab.kube.assets import Assets
from kproxy.lab.processes import Xtables

TOOLS = {"ip": "iproute2", "nft": "nftables", "conntrack": "conntrack", "setpriv": "util-linux"}
"""Programs the lab runs, and the Debian package of each."""

IPTABLES_NEEDS: Mapping[str, Need] = {
    "auto": frozenset({Ability.IPTABLES_NFT, Ability.IPTABLES_LEGACY}),
    "nft": frozenset({Ability.IPTABLES_NFT}),
    "legacy": frozenset({Ability.IPTABLES_LEGACY}),
}
"""Needs of each choice of the variant of iptables."""

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


def mode_needs(mode: str, iptables: str = "auto") -> frozenset[Need]:
    """Needs of a subject in a mode; none for modes that are not kube-proxy's."""
    match mode:
        case "iptables" | "userspace":
            return frozenset({IPTABLES_NEEDS[iptables]})
        case "nftables":
            return frozenset({frozenset({Ability.NFTABLES})})
        case "ipvs":
            own = (frozenset({ability}) for ability in (Ability.IP_VS, Ability.DUMMY, Ability.IPSET))
            return frozenset({*own, IPTABLES_NEEDS[iptables]})
        case _:
            return frozenset()


def case_needs(case: Case, mode: str) -> frozenset[Need]:
    """Needs of a case besides those of its mode: SCTP sockets, and the needs of the mode that runs before."""
    sctp = {frozenset({Ability.SCTP})} if case.opens_sctp_sockets else set()
    before = MODE_BEFORE.get(mode, "") if case.profile.mode_before else ""
    return mode_needs(before) | sctp


def reason_kernel_cannot_run(case: Case, mode: str) -> str | None:
    """Reason why this kernel cannot run a case, with what it refused; None when it can."""
    for need in case_needs(case, mode):
        found = {ability: probe_once(ability) for ability in sorted(need, key=list(Ability).index)}
        if all(found.values()):
            refusals = "; ".join(f"{ability.value} ({reason})" for ability, reason in found.items())
            return f"this kernel lacks {refusals}"
    return None


@cache
def probe_once(ability: Ability) -> str:
    """Reason why this kernel lacks an ability, probed at the first use; empty when it has it."""
    return probe_abilities([ability])[ability]


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
    if subject.features >= frozenset(Feature) - OPTIONAL_FEATURES:
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
