"""The kernel's named counters (nfacct objects) that some rules count in; metrics read them (``met.nfacct-optional``).

Shared by both families of a network namespace.  Without them in the kernel, rules are written without counters.
Format: linux/netfilter/nfnetlink_acct.h.
"""

from __future__ import annotations

import errno
import logging
import struct
from typing import TYPE_CHECKING

from kproxy.linux.host import HostError
from kproxy.linux.netfilter.rules import CountPacket, End, Rule
from kproxy.linux.netlink import NetlinkFlag, attribute, attributes, netfilter_header
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink
from kproxy.proxy.backends.iptables.names import TRIAL
from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.rules import PacketCounter, TableName, specification

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kproxy.proxy.backends.xtables.kernel.tools import Tools

_NEW, _GET, _DELETE = (7 << 8 | message for message in (0, 1, 3))
_NAME, _PACKETS = 1, 2
_UNSPECIFIED_FAMILY = 0
_HEADER_SIZE = 4
_NUMBER = struct.Struct(">Q")
_PRESENT_ERRNOS = frozenset({0, errno.EBUSY, errno.EEXIST})
_METRICS = {
    PacketCounter.INVALID_DROPPED: "iptables_ct_state_invalid_dropped_packets_total",
    PacketCounter.LOCALHOST_ACCEPTED: "iptables_localhost_nodeports_accepted_packets_total",
}

log = logging.getLogger(__name__)


def create_counters(counters: Iterable[PacketCounter]) -> frozenset[PacketCounter]:
    """Create missing counters; returns those that exist now, none where the kernel has no nfacct."""
    wanted = tuple(counters)
    results = _send_all((_NEW, NetlinkFlag.CREATE, _encode_name(counter)) for counter in wanted)
    return frozenset(c for c, result in zip(wanted, results, strict=False) if result in _PRESENT_ERRNOS)


def accepts_counting_rules(tools: Tools, counters: Iterable[PacketCounter]) -> bool:
    """True if the tools and the kernel accept a rule with a counter: they can lack the match and have the counters.

    True as well where they accept no rule at all now: that says nothing on counters.
    """
    counting = (Rule((CountPacket(counter.value), End.ACCEPT)) for counter in counters)
    return _accepts(tools, counting) or not _accepts(tools, [Rule((End.ACCEPT,))])


def _accepts(tools: Tools, rules: Iterable[Rule]) -> bool:
    """True if these rules can be written to a chain of their own, which is removed again."""
    lines = [f"-A {TRIAL} {specification(rule)}" for rule in rules]
    try:
        tools.restore([Block(TableName.FILTER, [f":{TRIAL} - [0:0]", *lines])])
        tools.restore([Block(TableName.FILTER, [f":{TRIAL} - [0:0]", f"-X {TRIAL}"])])
    except HostError:
        return False
    return True


def read_packet_counts() -> dict[PacketCounter, int]:
    """Packets counted so far, by counter; raises `HostError` where the kernel has no nfacct."""
    found: dict[PacketCounter, int] = {}
    with Netlink(NETLINK_NETFILTER) as netlink:
        for payload in netlink.dump(_GET, netfilter_header(_UNSPECIFIED_FAMILY)):
            entry = attributes(payload[_HEADER_SIZE:])
            name = bytes(entry[_NAME]).rstrip(b"\0").decode(errors="replace")
            if name in _BY_NAME:
                found[_BY_NAME[name]] = _NUMBER.unpack(entry[_PACKETS])[0]
    return found


def packet_metrics() -> dict[str, int]:
    """Packets counted so far, by metric; empty where the kernel does not count."""
    try:
        return {_METRICS[counter]: count for counter, count in read_packet_counts().items()}
    except HostError as error:
        log.debug("no counters of packets: %s", error)
        return {}


def delete_counters() -> None:
    """Delete our counters, but for those that a rule still counts in."""
    _send_all((_DELETE, NetlinkFlag(0), _encode_name(counter)) for counter in PacketCounter)


_BY_NAME = {counter.value: counter for counter in PacketCounter}


def _encode_name(counter: PacketCounter) -> bytes:
    return netfilter_header(_UNSPECIFIED_FAMILY) + attribute(_NAME, counter.value.encode() + b"\0")


def _send_all(requests: Iterable[tuple[int, NetlinkFlag, bytes]]) -> list[int]:
    """Send requests; returns the errno of each reply, none where netlink is unavailable."""
    try:
        with Netlink(NETLINK_NETFILTER) as netlink:
            return netlink.send_all(requests)
    except HostError:
        return []
