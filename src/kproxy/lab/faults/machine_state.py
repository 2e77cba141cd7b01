"""Snapshot of this machine's packet filter rules and sysctls, taken before and after a run.

It proves that the run did not change them. Only reads. State that a machine changes by itself (connections,
addresses, routes, elements of sets) is left out. The namespaces of a lab depend on one part only: the values of
network sysctls in a new network namespace, which are the same in all or inherited. So these are read as well.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from kproxy.lab import namespaces

OWN, INHERITED = "sysctl ", "new network namespaces: sysctl "

MachineState = Mapping[str, str]
"""Text of each rule set and sysctl, by its name."""

_RULES = {
    "nftables": ("nft", "--stateless", "--terse", "list", "ruleset"),
    "iptables-legacy": ("iptables-legacy-save",),
    "ip6tables-legacy": ("ip6tables-legacy-save",),
    "routing policy": ("ip", "rule"),
    "IPv6 routing policy": ("ip", "-6", "rule"),
    "sets": ("ipset", "list", "-name"),
    "virtual servers": ("ipvsadm", "--save", "--numeric"),
}
_MOST_SECONDS = 60
_SYSCTLS = "/proc/sys"
_SYSCTL_TREES = ("fs", "kernel", "net", "vm")
_RESTLESS = re.compile(
    r"kernel/(ns_last_pid|random/|sched_domain)|net/\w+/(tcp|udp)_mem$|kernel/pty/nr$|kernel/perf_\w+$"
)
_COUNTED = re.compile(r"^#.*\n|\[\d+:\d+\]", re.MULTILINE)
_MOST_SHOWN = 5


def read_machine_state() -> MachineState:
    """State of this process's own network namespace, and sysctls of a new one. Raises `LabError` where a tool does not end."""
    own = {f"{OWN}{name}": text for name, text in _sysctls()}
    rules = {name: _output(command) for name, command in _RULES.items() if shutil.which(command[0])}
    return {**rules, **own, **_inherited(own)}


def _inherited(own: MachineState) -> MachineState:
    """Network sysctls that can be set here, with their values in a new namespace; none where none can be made.

    Some, such as nf_conntrack_max, hold for all namespaces and can only be read in a new one.
    """
    names = [place.removeprefix(OWN) for place in own if place.startswith(f"{OWN}net/")]
    try:
        new = namespaces.create_namespace("new")
    except namespaces.LabError:
        return {}
    try:
        with new.entered():
            texts = {f"{INHERITED}{name}": _text(f"{_SYSCTLS}/{name}", 0o400) for name in names}
    finally:
        new.close()
    return {place: text for place, text in texts.items() if text is not None}


def inherited_by_labs(machine: MachineState) -> MachineState:
    """The part of a snapshot that a lab can depend on.

    Network sysctls as a new namespace has them, or this namespace's own where none can be made.
    """
    inherited = {place: text for place, text in machine.items() if place.startswith(INHERITED)}
    return inherited or {place: text for place, text in machine.items() if place.startswith(f"{OWN}net/")}


def machine_state_changes(before: MachineState, after: MachineState) -> list[str]:
    """Differences between two snapshots, one line per rule set or sysctl.

    A sysctl that appears or disappears with its device is not a difference.
    """
    both = sorted(before.keys() & after.keys())
    return [
        f"{place}: {_difference(before[place], after[place])}"
        for place in both
        if before[place] != after[place]
    ]


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")
    differing = [
        f"{line[0]} {text}"
        for line in list(lines)[2:]
        if line[0] in "+-" and (text := line[1:].strip(" \t{}"))
    ]
    more = [f"and {len(differing) - _MOST_SHOWN} more lines"] if len(differing) > _MOST_SHOWN else []
    return ", ".join([*differing[:_MOST_SHOWN], *more])


def _output(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_MOST_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise namespaces.LabError(
            f"{shlex.join(command)} has not ended within {_MOST_SECONDS} s, so what is on this machine is not known"
        ) from error
    return _COUNTED.sub("", done.stdout)


def _sysctls() -> Iterator[tuple[str, str]]:
    for tree in _SYSCTL_TREES:
        for folder, _, names in os.walk(f"{_SYSCTLS}/{tree}"):
            for name in names:
                path = f"{folder}/{name}"
                if not _RESTLESS.match(path, len(_SYSCTLS) + 1) and (text := _text(path)) is not None:
                    yield path.removeprefix(f"{_SYSCTLS}/"), text


def _text(path: str, mode: int = 0o600) -> str | None:
    """Text of a file with (at least) the permissions ``mode``; None without them, or when it cannot be read."""
    try:
        if os.stat(path).st_mode & mode != mode:  # noqa: PTH116 (a thousand files: a path object for each is most of the time)
            return None
        with open(path, errors="replace") as file:  # noqa: PTH123 (the same)
            return file.read().strip()
    except OSError:
        return None
