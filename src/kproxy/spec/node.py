"""Facts about the judged node that no API object carries: its addresses and the proxy's settings.

Pure values for the oracle; deliberately not the proxy's own `kproxy.proxy.plan.PlanSettings`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kproxy.model.network import Address, Family, Network


class DetectMode(enum.Enum):
    """KubeProxyConfiguration ``detectLocalMode``."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The node a packet is judged on.

    ``addresses``: every address of its interfaces, loopback included; ``late_addresses``: those of them that it
    got after its proxy had started.  ``cluster_cidrs`` as
    configured, in order.  ``detect_interface``: the bridge's name or the name prefix.
    ``node_port_addresses``: the configured list; empty when unset (then the default of the
    proxy's mode holds, and modes differ); the word ``primary`` is `PRIMARY`.
    ``localhost_node_ports`` None when unset.  ``families``: those its kernel has.
    """

    name: str
    addresses: frozenset[Address]
    detect_mode: DetectMode = DetectMode.CLUSTER_CIDR
    cluster_cidrs: tuple[Network, ...] = ()
    detect_interface: str = ""
    masquerade_all: bool = False
    node_port_addresses: tuple[Network, ...] | Primary = ()
    localhost_node_ports: bool | None = None
    allow_external_ips: bool = True
    families: tuple[Family, ...] = tuple(Family)
    late_addresses: frozenset[Address] = frozenset()


class Primary(enum.Enum):
    """The configured word ``primary``: only the Node object's own addresses."""

    PRIMARY = "primary"


PRIMARY = Primary.PRIMARY
