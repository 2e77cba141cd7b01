"""The lab's network on this kernel: the topology's namespaces, wired and addressed.

It makes nothing in the machine's own namespace: every link is made inside the lab's own.
`Network.close` (or the death of the process) leaves nothing behind.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Protocol as Interface
from typing import Self

from kproxy.lab import wiring
from kproxy.lab.namespaces import LabError, Namespace, communicate, create_namespace
from kproxy.lab.topology import ELSEWHERE, LAB, SWITCH, Topology
from kproxy.lab.wiring import LabWiring
from kproxy.model.network import Family

_SETTLING_SECONDS, _POLL = 10.0, 0.002
_PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


class Wiring(Interface):
    """Description of a network as text for ``ip -batch``, as `kproxy.lab.wiring.LabWiring`.

    It has a switch and an elsewhere, called as there.
    """

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces."""

    def sysctls(self, name: str, /) -> Mapping[str, str]:
        """Sysctls of a namespace."""

    def links(self, path: Mapping[str, str], /) -> str:
        """Batch that makes every link."""

    def addressing(self, name: str, family: Family, /) -> str:
        """Batch with a namespace's addresses, routes and policy rules."""


class Network:
    """Namespaces by name: nodes, pods, ``client``, ``remote``, ``router``, ``elsewhere``, ``switch``."""

    def __init__(self, namespaces: Iterable[Namespace]) -> None:
        self._namespaces = {namespace.name: namespace for namespace in namespaces}

    def __getitem__(self, name: str) -> Namespace:
        """Namespace by its name in the topology; KeyError for others."""
        return self._namespaces[name]

    def __contains__(self, name: str) -> bool:
        """True if there is a namespace of that name."""
        return name in self._namespaces

    def add_node_address(self, node: str, family: Family, topology: Topology) -> None:
        """Add a node's additional address, ready for packets when this returns; repeating it is harmless."""
        flag = "-4" if family is Family.IPV4 else "-6"
        self[node].run(("ip", flag, "-batch", "-"), LabWiring(topology).gained(node, family))
        _wait_for_addresses(self, [node])

    def switch_off_ipv6(self, names: Iterable[str]) -> None:
        """Disable IPv6 in these namespaces (`net.ipv6.conf.all.disable_ipv6=1`)."""
        for name in names:
            self[name].set({"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"})

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Release all namespaces; the kernel removes each when its last socket is closed."""
        for namespace in self._namespaces.values():
            namespace.close()


_LAB_WIRING = LabWiring(LAB)


def build_network(
    wires: Wiring = _LAB_WIRING, existing: Mapping[str, Namespace] = MappingProxyType({})
) -> Network:
    """Build a network, ready for packets of both families when this returns (about 0.1 s).

    ``existing``: namespaces to take as those of that name, with no link in them but loopback (a container's, for
    instance); the network closes them.  Raises `LabError` when a prerequisite is missing, naming it.
    """
    _require_root()
    network = Network(existing.get(name) or create_namespace(name) for name in wires.namespaces)
    try:
        _wire(network, wires)
    except BaseException:
        network.close()
        raise
    return network


def _require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab needs root for network namespaces; run with sudo, or in `unshare -Urnm`")


def _wire(network: Network, wires: Wiring) -> None:
    _load_modules(network[ELSEWHERE])
    for name in wires.namespaces:
        network[name].set(wires.sysctls(name))
    paths = {name: network[name].path for name in wires.namespaces}
    network[SWITCH].run(("ip", "-batch", "-"), wires.links(paths))
    started = [
        (network[name].start(("ip", flag, "-batch", "-"), **_PIPES), wires.addressing(name, family))
        for name in wires.namespaces
        for family, flag in ((Family.IPV4, "-4"), (Family.IPV6, "-6"))
    ]
    for process, text in started:
        communicate(process, text)
    for name in wires.namespaces:
        network[name].activate_links()
    _wait_for_addresses(network, wires.namespaces)


def _load_modules(elsewhere: Namespace) -> None:
    """Load IPv6 and conntrack before their sysctls are written: both may be modules."""
    with suppress(OSError):
        elsewhere.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    _answer_for_everything(elsewhere)


def _answer_for_everything(elsewhere: Namespace) -> None:
    """Make elsewhere reply on every address and port, by nftables or, on a kernel without it, by legacy iptables."""
    try:
        elsewhere.run(("nft", "-f", "-"), wiring.ELSEWHERE_RULES)
    except LabError:
        for tool in ("iptables", "ip6tables"):
            for arguments in wiring.elsewhere_rules():
                elsewhere.run(("xtables-legacy-multi", tool, *arguments))
        for command in wiring.elsewhere_pings():
            elsewhere.run(("xtables-legacy-multi", *command))


def _wait_for_addresses(network: Network, names: Iterable[str]) -> None:
    deadline = time.monotonic() + _SETTLING_SECONDS
    pending = list(names)
    while pending := [name for name in pending if not network[name].addresses_settled()]:
        if time.monotonic() > deadline:
            raise LabError(f"the kernel did not bring up the IPv6 addresses of {', '.join(pending)}")
        time.sleep(_POLL)
