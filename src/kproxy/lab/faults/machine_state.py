"""What a run must leave alone: this machine's own rules and sysctls, read before it and after it.

Only reads.  What a machine changes by itself (connections, addresses, routes, elements of sets) is not looked at.
Of all this the namespaces of a lab depend on one thing only: what a sysctl of the network is in a new network namespace, because it
is the same in all of them or is inherited.  So that is read as well.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from kproxy.lab import namespaces

OWN, INHERITED = "sysctl ", "new network namespaces: sysctl "

MachineState = Mapping[str, str]
"""What there is, by where it is."""

_RULES = {
    "nftables": ("nft", "--stateless", "--terse", "list", "ruleset"),
    "iptables-legacy": ("iptables-legacy-save",),
    "ip6tables-legacy": ("ip6tables-legacy-save",),
    "routing policy": ("ip", "rule"),
    "IPv6 routing policy": ("ip", "-6", "rule"),
    "sets": ("ipset", "list", "-name"),
    "virtual servers": ("ipvsadm", "--save", "--numeric"),
}
_SYSCTLS = "/proc/sys"
_SYSCTL_TREES = ("fs", "kernel", "net", "vm")
_RESTLESS = re.compile(
    r"kernel/(ns_last_pid|random/|sched_domain)|net/\w+/(tcp|udp)_mem$|kernel/pty/nr$|kernel/perf_\w+$"
)
_COUNTED = re.compile(r"^#.*\n|\[\d+:\d+\]", re.MULTILINE)
_MOST_SHOWN = 5


def read_machine_state() -> MachineState:
    """What there is now, in this process's own network namespace and in a new one."""
    own = {f"{OWN}{name}": text for name, text in _sysctls()}
    rules = {name: _output(command) for name, command in _RULES.items() if shutil.which(command[0])}
    return {**rules, **own, **_inherited(own)}


def _inherited(own: MachineState) -> MachineState:
    """The network's sysctls that can be set here as a new namespace has them; none where no namespace can be made.

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
    """The part that answers in a lab may depend on."""
    inherited = {place: text for place, text in machine.items() if place.startswith(INHERITED)}
    return inherited or {place: text for place, text in machine.items() if place.startswith(f"{OWN}net/")}


def machine_state_changes(before: MachineState, after: MachineState) -> list[str]:
    """What has changed, in words, a line for each place; what has come or gone as a whole with a device is none."""
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
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return _COUNTED.sub("", done.stdout)


def _sysctls() -> Iterator[tuple[str, str]]:
    for tree in _SYSCTL_TREES:
        for folder, _, names in os.walk(f"{_SYSCTLS}/{tree}"):
            for name in names:
                path = f"{folder}/{name}"
                if not _RESTLESS.match(path, len(_SYSCTLS) + 1) and (text := _text(path)) is not None:
                    yield path.removeprefix(f"{_SYSCTLS}/"), text


def _text(path: str, mode: int = 0o600) -> str | None:
    """What is there, if it can be set and read, or whatever else ``mode`` asks for."""
    try:
        if os.stat(path).st_mode & mode != mode:  # noqa: PTH116 (a thousand files: a path object for each is most of the time)
            return None
        with open(path, errors="replace") as file:  # noqa: PTH123 (the same)
            return file.read().strip()
    except OSError:
        return None
