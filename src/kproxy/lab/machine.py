"""What a run must leave alone: this machine's own rules and sysctls, read before it and after it.

Only reads.  What a machine changes by itself (connections, addresses, routes, elements of sets) is not looked at.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

Machine = Mapping[str, str]
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
_ROOMS = ("fs", "kernel", "net", "vm")
_RESTLESS = re.compile(
    r"kernel/(ns_last_pid|random/|sched_domain)|net/\w+/(tcp|udp)_mem$|kernel/pty/nr$|kernel/perf_\w+$"
)
_COUNTED = re.compile(r"^#.*\n|\[\d+:\d+\]", re.MULTILINE)
_MOST_SHOWN = 5


def look() -> Machine:
    """What there is now, in this process's own network namespace."""
    rules = {name: _output(command) for name, command in _RULES.items() if shutil.which(command[0])}
    return {**rules, **{f"sysctl {name}": text for name, text in _sysctls()}}


def changes(before: Machine, after: Machine) -> list[str]:
    """What has changed, in words, a line for each place; what has come or gone as a whole with a device is none."""
    both = sorted(before.keys() & after.keys())
    return [
        f"{place}: {_difference(before[place], after[place])}"
        for place in both
        if before[place] != after[place]
    ]


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")
    told = [
        f"{line[0]} {text}"
        for line in list(lines)[2:]
        if line[0] in "+-" and (text := line[1:].strip(" \t{}"))
    ]
    more = [f"and {len(told) - _MOST_SHOWN} more lines"] if len(told) > _MOST_SHOWN else []
    return ", ".join([*told[:_MOST_SHOWN], *more])


def _output(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return _COUNTED.sub("", done.stdout)


def _sysctls() -> Iterator[tuple[str, str]]:
    for room in _ROOMS:
        for folder, _, names in os.walk(f"{_SYSCTLS}/{room}"):
            for name in names:
                path = f"{folder}/{name}"
                if not _RESTLESS.match(path, len(_SYSCTLS) + 1) and (text := _text(path)) is not None:
                    yield path.removeprefix(f"{_SYSCTLS}/"), text


def _text(path: str) -> str | None:
    """What can be set and read there."""
    try:
        if os.stat(path).st_mode & 0o600 != 0o600:  # noqa: PTH116 (a thousand files: a path object for each is most of the time)
            return None
        with open(path, errors="replace") as file:  # noqa: PTH123 (the same)
            return file.read().strip()
    except OSError:
        return None
