"""File descriptor budget of this process: the limit, the number reserved for essential uses, shortages by purpose.

A daemon cannot bound how many health check node ports a cluster wants, nor how many clients connect. These
purposes may not use the last descriptors, so that netlink, tools and the API server's connections still find
one. When there is none at all (another process may have used up the machine's), the operation fails, the
shortage is counted here, and it is retried. Below `kproxy.linux.host`; limit and counts belong to the
process, so they are global to the module.
"""

from __future__ import annotations

import enum
import errno
import resource
from collections import Counter
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Purpose(enum.Enum):
    """Purpose of a descriptor, as shortages are counted."""

    NETLINK = "netlink"
    COMMAND = "command"
    FILE = "file"
    LISTENER = "listener"
    CONNECTION = "connection"
    API_SERVER = "api_server"


MAX_DESCRIPTORS = 1 << 20
"""Upper bound of the limit that `raise_limit` sets: programs that we start close every possible descriptor, one by one.
"""

_RESERVED = {Purpose.LISTENER: 128, Purpose.CONNECTION: 64}
"""Descriptors that each purpose must leave free; never more than half of the limit."""

_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE})
_counts: Counter[Purpose] = Counter()

shortages: Mapping[Purpose, int] = MappingProxyType(_counts)
"""Number of EMFILE and ENFILE errors, by purpose."""


def descriptor_limit() -> int:
    """Soft limit of descriptors (RLIMIT_NOFILE), at most `MAX_DESCRIPTORS`; every descriptor is a smaller number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_limit(at_least: int = 0) -> None:
    """Raise the soft limit to the hard limit, as the Go runtime does; where allowed, a hard limit that is lower to ``at_least``."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if wanted < at_least:
        with suppress(ValueError, OSError):  # no privilege, or the kernel's maximum (fs.nr_open) is lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (at_least, at_least))
    if descriptor_limit() < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_reserved(number: int, purpose: Purpose) -> bool:
    """True if a descriptor of that number is one of the last, which ``purpose`` must leave free."""
    most = descriptor_limit()
    return number >= most - min(_RESERVED.get(purpose, 0), most // 2)


def reserved_error() -> OSError:
    """EMFILE, for a purpose that may not use the reserved descriptors."""
    return OSError(errno.EMFILE, "no descriptors left but those kept for the rest of the daemon")


def is_shortage(error: OSError) -> bool:
    """True if the error means that the process (EMFILE) or the machine (ENFILE) has no descriptor left."""
    return error.errno in _SHORTAGE


def count_shortage(error: OSError, purpose: Purpose) -> None:
    """Count the error under ``purpose`` if it is EMFILE or ENFILE; ignore any other."""
    if is_shortage(error):
        _counts[purpose] += 1


def shortage_hint(error: OSError) -> str:
    """Remedy to append to the text of a descriptor shortage; empty for any other error."""
    if not is_shortage(error):
        return ""
    return f" (of {descriptor_limit()} descriptors; raise the limit of open files: LimitNOFILE=, ulimit -Hn)"
