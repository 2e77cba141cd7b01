"""Abilities of a kernel, probed by using each once in a network namespace of its own.

``python -m kproxy.lab.kernels.abilities [NAME...]`` prints as JSON what the kernel it runs on lacks: that is how
a kernel that must be entered or booted first is probed.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import socket
import struct
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from kproxy.lab.namespaces import LabError, Namespace, create_namespace
from kproxy.linux.host import HostError
from kproxy.linux.netlink import NetlinkFlag, attribute, attributes, nested
from kproxy.linux.netlink_socket import Netlink


class Ability(enum.Enum):
    """Feature that a kernel may lack."""

    NAMESPACES = "namespaces"
    VETH = "veth"
    BRIDGE = "bridge"
    IPTABLES_NFT = "iptables-nft"
    IPTABLES_LEGACY = "iptables-legacy"
    NFTABLES = "nftables"
    IPSET = "ipset"
    CONNTRACK = "conntrack"
    IP_VS = "ip_vs"
    DUMMY = "dummy"
    SCTP = "sctp"
    TIME_TRAVEL = "time-travel"


Obstacles = Mapping[Ability, str]
"""Reason for the lack of each ability; empty for one that works."""


class KernelName(enum.Enum):
    """Ways to have a kernel, in the order in which they are tried."""

    HOST = "host"
    ROOTLESS = "rootless"
    UML = "uml"
    VM = "vm"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSurvey:
    """Survey of one kernel.

    ``what``: its description. ``unusable``: why the lab cannot be run on it at all, ``fix``: what to do. An ability
    that ``obstacles`` does not name was not probed.
    """

    name: KernelName
    what: str = ""
    obstacles: Obstacles = field(default_factory=dict)
    unusable: str = ""
    fix: str = ""


_REASON_WIDTH = 200

REAL_TIME = "time passes by itself"

PACKAGES = {
    "ip": "iproute2",
    "nft": "nftables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "xtables-nft-multi": "iptables",
    "xtables-legacy-multi": "iptables",
}
"""Programs that probes run, and the Debian package of each."""

_RULE = (
    *("-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", "192.0.2.1", "--dport", "80"),
    *("-m", "statistic", "--mode", "random", "--probability", "0.5"),
    *("-j", "DNAT", "--to-destination", "192.0.2.2:80"),
)
_FLOW = ("-p", "udp", "-s", "192.0.2.1", "-d", "192.0.2.2", "--sport", "1", "--dport", "2")
_REPLY = ("-r", "192.0.2.2", "-q", "192.0.2.1", "--reply-port-src", "2", "--reply-port-dst", "1")
_RULESET = """
table ip probe {
  map services { type ipv4_addr . inet_proto . inet_service : verdict; }
  chain output {
    type nat hook output priority -100
    ip daddr 192.0.2.1 dnat to numgen random mod 2 map { 0 : 192.0.2.2, 1 : 192.0.2.3 }
    ip daddr . meta l4proto . th dport vmap @services
  }
}
"""


def find_system_programs() -> None:
    """Extend PATH by the folders of system programs, which a user's PATH may lack."""
    path = os.environ.get("PATH", os.defpath).split(":")
    os.environ["PATH"] = ":".join(dict.fromkeys([*path, "/usr/sbin", "/sbin"]))


def _commands(*commands: tuple[str, ...]) -> Callable[[Namespace], None]:
    def run(namespace: Namespace) -> None:
        for command in commands:
            _run(namespace, command)

    return run


def _run(namespace: Namespace, command: tuple[str, ...], stdin: str = "") -> str:
    if shutil.which(command[0]) is None:
        raise LabError(f"{command[0]} is not installed: apt-get install {PACKAGES[command[0]]}")
    return namespace.run(command, stdin)


def _sysctl(namespace: Namespace) -> None:
    """Write one, which containers' engines forbid by mounting /proc/sys read-only."""
    namespace.set({"ipv4/ip_forward": "1"})


def _nftables(namespace: Namespace) -> None:
    _run(namespace, ("nft", "-f", "-"), _RULESET)


def _conntrack(namespace: Namespace) -> None:
    """Insert an entry and list it."""
    _run(namespace, ("conntrack", "-I", *_FLOW, *_REPLY, "-t", "60"))
    if "192.0.2.2" not in _run(namespace, ("conntrack", "-L")):
        raise LabError("conntrack forgot an entry that was put in")


_GENERIC_NETLINK = 16
_FIND_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2
_NEW_SERVICE, _SERVICE = 1, 1
_ROUND_ROBIN = b"rr\0"


def _ip_vs(namespace: Namespace) -> None:
    """Add a virtual server (linux/ip_vs.h; resolving the family by name loads its module)."""
    with namespace.entered():
        netlink = Netlink(_GENERIC_NETLINK)
    with netlink:
        find = struct.pack("BBxx", _FIND_FAMILY, 1)
        _order(netlink, _GENERIC_NETLINK, find + attribute(_FAMILY_NAME, b"IPVS\0"))
        families = (attributes(payload[4:]) for payload in netlink.dump(_GENERIC_NETLINK, find))
        number = next(f[_FAMILY_ID] for f in families if bytes(f[_FAMILY_NAME]) == b"IPVS\0")
        order = struct.pack("BBxx", _NEW_SERVICE, 1) + nested(_SERVICE, *_virtual_server())
        _order(netlink, int.from_bytes(number, sys.byteorder), order)


def _virtual_server() -> list[bytes]:
    values = {
        1: struct.pack("=H", socket.AF_INET),
        2: struct.pack("=H", socket.IPPROTO_TCP),
        3: IPv4Address("192.0.2.1").packed.ljust(16, b"\0"),
        4: struct.pack(">H", 80),
        6: _ROUND_ROBIN,
        7: struct.pack("=II", 0, 0xFFFFFFFF),
        8: struct.pack("=I", 0),
        9: b"\xff\xff\xff\xff",
    }
    return [attribute(kind, value) for kind, value in values.items()]


def _order(netlink: Netlink, kind: int, body: bytes) -> None:
    (number,) = netlink.send_all([(kind, NetlinkFlag(0), body)])
    if number:
        raise OSError(number, "generic netlink family IPVS")


def _sctp(namespace: Namespace) -> None:
    """Connect over loopback."""
    _run(namespace, ("ip", "link", "set", "lo", "up"))
    sctp = 132
    with namespace.entered():
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, sctp)
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, sctp)
    with server, client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.settimeout(5)
        client.connect(server.getsockname())


def _time_travel(_: Namespace) -> None:
    """Never found: only the caller that boots a kernel can enable it, and a running one cannot begin with it."""
    raise LabError(REAL_TIME)


PROBES: Mapping[Ability, Callable[[Namespace], None]] = {
    Ability.NAMESPACES: _sysctl,
    Ability.VETH: _commands(("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")),
    Ability.BRIDGE: _commands(("ip", "link", "add", "bridge", "type", "bridge")),
    Ability.IPTABLES_NFT: _commands(("xtables-nft-multi", "iptables", *_RULE)),
    Ability.IPTABLES_LEGACY: _commands(("xtables-legacy-multi", "iptables", *_RULE)),
    Ability.NFTABLES: _nftables,
    Ability.IPSET: _commands(
        ("ipset", "create", "probe", "hash:ip,port"), ("ipset", "add", "probe", "192.0.2.1,tcp:80")
    ),
    Ability.CONNTRACK: _conntrack,
    Ability.IP_VS: _ip_vs,
    Ability.DUMMY: _commands(
        ("ip", "link", "add", "probe", "type", "dummy"),
        ("ip", "address", "add", "192.0.2.1/32", "dev", "probe"),
    ),
    Ability.SCTP: _sctp,
    Ability.TIME_TRAVEL: _time_travel,
}


def probe_abilities(abilities: Iterable[Ability] = Ability) -> dict[Ability, str]:
    """Probe each ability on this kernel, each in a namespace of its own (0.3 s for all)."""
    return {ability: _lack(ability) for ability in abilities}


def _lack(ability: Ability) -> str:
    try:
        namespace = create_namespace(ability.value)
        try:
            PROBES[ability](namespace)
        finally:
            namespace.close()
    except (LabError, HostError, OSError) as reason:
        return textwrap.shorten(str(reason).splitlines()[0], _REASON_WIDTH, placeholder=" ...")
    return ""


def encode_obstacles(obstacles: Obstacles) -> str:
    """Obstacles as JSON."""
    return json.dumps({ability.value: reason for ability, reason in obstacles.items()})


def decode_obstacles(text: str) -> dict[Ability, str]:
    """Obstacles from the output of `encode_obstacles`; ValueError for any other text."""
    return {Ability(name): str(reason) for name, reason in json.loads(text).items()}


if __name__ == "__main__":
    print(encode_obstacles(probe_abilities(map(Ability, sys.argv[1:]) if sys.argv[1:] else Ability)))  # noqa: T201
