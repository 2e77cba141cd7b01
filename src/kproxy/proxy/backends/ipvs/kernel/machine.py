"""Machine settings of ipvs mode: sysctls that it sets, and schedulers and options that the kernel determines.

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import platform
import re
from ipaddress import ip_address

from kproxy.linux import host
from kproxy.linux.conntrack import invalid_drops
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.ipvs.compile import STICKY_SCHEDULERS
from kproxy.proxy.backends.ipvs.diff import RemoveServer, SetServer
from kproxy.proxy.backends.ipvs.kernel.ipvs_socket import Ipvs, has_scheduler
from kproxy.proxy.backends.ipvs.rules import AddressKey, Server
from kproxy.proxy.backends.ipvs.static_rules import Options

_SETTINGS = {
    "net/ipv4/vs/conntrack": "1",
    "net/ipv4/vs/expire_nodest_conn": "1",
    "net/ipv4/vs/expire_quiescent_template": "1",
    "net/ipv4/ip_forward": "1",
}
_STRICT_ARP = {"net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2"}
_CONN_REUSE_MODE = "net/ipv4/vs/conn_reuse_mode"
_REUSE_DELAYED = ((4, 1), (5, 9))
"""Kernel versions, from and below, that delay a reused connection by a second unless conn_reuse_mode is 0."""

_PROBE = {Family.IPV4: ip_address("198.51.100.0"), Family.IPV6: ip_address("2001:db8::")}
_PROBE_PORT = 20000


def set_sysctls(*, strict_arp: bool) -> None:
    """Set the sysctls of ipvs mode (``ipvs.sysctls``, ``ipvs.strict-arp``)."""
    wanted = _SETTINGS | (_STRICT_ARP if strict_arp else {})
    for name, value in wanted.items():
        host.write_sysctl(name, value)
    first, after = _REUSE_DELAYED
    if first <= _kernel_version() < after:
        host.write_sysctl(_CONN_REUSE_MODE, "0")


def machine_options(masquerade_bit: int, *, random_fully: bool) -> Options:
    """Options that depend on this machine, read now.

    Clauses ``conntrack.invalid-not-leaked``, ``masquerade.source-ports.redrawn``.
    """
    return Options(1 << masquerade_bit, random_fully=random_fully, drop_invalid_input=invalid_drops().input)


def check_scheduler(ipvs: Ipvs, scheduler: str, family: Family) -> None:
    """Raise `HostError` UNSUPPORTED if this kernel does not have the scheduler (``ipvs.schedulers``)."""
    if not _works(ipvs, scheduler, family):
        fix = f"this kernel does not have it (modprobe ip_vs_{scheduler})"
        raise HostError(f"IPVS scheduler {scheduler}", fix, Reason.UNSUPPORTED)


def sticky_scheduler(ipvs: Ipvs, family: Family) -> str:
    """The best scheduler by client address that this kernel has; the last of the list if it has none."""
    return next((name for name in STICKY_SCHEDULERS if _works(ipvs, name, family)), STICKY_SCHEDULERS[-1])


def _works(ipvs: Ipvs, scheduler: str, family: Family) -> bool:
    key = AddressKey(_PROBE[family], _PROBE_PORT, Protocol.TCP)
    probe = SetServer(key, Server(scheduler), new=True)
    works = has_scheduler(ipvs, (probe,), family)
    ipvs.send((RemoveServer(key),), family)
    return works


def _kernel_version() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(found[1]), int(found[2])) if found else (0, 0)
