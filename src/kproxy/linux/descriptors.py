"""The file descriptors of this process: how many there may be, who must leave some to others, and how often there was none.

A daemon cannot bound how many health check node ports a cluster wants, nor how many clients connect.  These take no descriptor of
the last ones, so that netlink, tools and the API server's connections still find one.  Where all are gone all the
same (another process may have used up the machine's), whoever needs one fails, counts that here, and tries again.
Below `kproxy.linux.host`; the limits and the counts are the process's own, so they are the module's.
"""

from __future__ import annotations

import enum
import errno
import resource
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Purpose(enum.Enum):
    """What a descriptor was wanted for."""

    NETLINK = "netlink"
    COMMAND = "command"
    FILE = "file"
    LISTENER = "listener"
    CONNECTION = "connection"
    API_SERVER = "api_server"


MAX_DESCRIPTORS = 1 << 20
"""Enough for any cluster; some programs that we start close as many as they may have, one by one."""

_RESERVED = {Purpose.LISTENER: 128, Purpose.CONNECTION: 64}
"""How many descriptors a use must leave, though never more than half of all."""

_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE})
_counts: Counter[Purpose] = Counter()

shortages: Mapping[Purpose, int] = MappingProxyType(_counts)
"""How often there was no descriptor, by purpose."""


def descriptor_limit() -> int:
    """How many this process may have; their numbers are below it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Have as many as the hard limit allows, as programs in Go do of their own accord."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if descriptor_limit() < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_reserved(number: int, purpose: Purpose) -> bool:
    """Whether a descriptor of that number is one of the last, which the purpose leaves to others."""
    most = descriptor_limit()
    return number >= most - min(_RESERVED.get(purpose, 0), most // 2)


def reserved_error() -> OSError:
    """The error of a purpose that may not have the last descriptors."""
    return OSError(errno.EMFILE, "no descriptors left but those kept for the rest of the daemon")


def is_shortage(error: OSError) -> bool:
    """Whether it means that the process, or the machine, has no descriptor left."""
    return error.errno in _SHORTAGE


def count_shortage(error: OSError, purpose: Purpose) -> None:
    """Count an error if it is such a one."""
    if is_shortage(error):
        _counts[purpose] += 1


def shortage_hint(error: OSError) -> str:
    """What to do about it, to be appended to an error's text; empty where it is another one."""
    if not is_shortage(error):
        return ""
    return f" (of {descriptor_limit()} descriptors; raise the limit of open files: LimitNOFILE=, ulimit -Hn)"
