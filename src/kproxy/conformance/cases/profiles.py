"""The proxy configurations that cases share; each is one lab with two proxies.

Only values.  Addresses are those of `kproxy.lab.topology`.  A lab costs seconds, so a case takes an
existing profile wherever it can.
"""

from __future__ import annotations

from kproxy.conformance.case import DEFAULT, Profile
from kproxy.model.network import Family

__all__ = [
    "BRIDGE_INTERFACE",
    "DEFAULT",
    "FLUSHED",
    "FORWARD_DROP",
    "INTERFACE_PREFIX",
    "LARGE",
    "LIBERAL",
    "LOCALHOST_OFF",
    "LONE_CHANGES",
    "MASQUERADE_ALL",
    "MODE_CHANGE",
    "NODE_CIDR",
    "NODE_PORT_CIDR",
    "NO_DETECTOR",
    "PRIMARY_WITHOUT_EXTERNAL_IPS",
    "REMOVED",
    "RESTART",
    "STARTS",
    "WATCHES",
    "WITHOUT_IPV6",
    "WRITES",
    "WRITES_OF_ONE_FAMILY",
]

NO_DETECTOR = Profile(name="no-detector", detect_mode=None, localhost_node_ports=True)
"""Mode ClusterCIDR without a CIDR: no sender is detected as a pod.  Localhost node ports are enabled too."""

NODE_CIDR = Profile(name="node-cidr", detect_mode="NodeCIDR")
"""Pods are the sources in the Node's own ``spec.podCIDRs``."""

INTERFACE_PREFIX = Profile(
    name="interface-prefix", detect_mode="InterfaceNamePrefix", detect_interface="veth"
)
"""Pods are senders behind an interface named ``veth...``: all pods of the node."""

BRIDGE_INTERFACE = Profile(
    name="bridge-interface",
    detect_mode="BridgeInterface",
    detect_interface="veth-a1",
    node_port_addresses=("172.18.0.0/24", "10.96.0.0/16", "fd00:18::/64", "fd00:96::/112"),
)
"""Pods are senders behind exactly this interface: ``a1``, and no other.

And, of no bearing on that, addresses for node ports that cluster IPs lie between.
"""

MASQUERADE_ALL = Profile(name="masquerade-all", masquerade_all=True)

NODE_PORT_CIDR = Profile(name="node-port-cidr", node_port_addresses=("172.18.0.0/24", "fd00:18::/64"))
"""Node ports on the node network only: not on the second interface, not on loopback."""

PRIMARY_WITHOUT_EXTERNAL_IPS = Profile(
    name="primary-without-external-ips",
    node_port_addresses=("primary",),
    allow_external_ips=False,
)
"""Node ports on the Node object's addresses only; and, of no bearing on that, external IPs refused."""

LOCALHOST_OFF = Profile(
    name="localhost-off",
    localhost_node_ports=False,
    node_port_addresses=("0.0.0.0/0", "192.0.2.0/24"),
    detect_families=(Family.IPV4,),
)
"""Node ports on every IPv4 address but loopback.  No IPv6 entry: IPv6 takes all addresses too.

And, of no bearing on that, pods that are detected in IPv4 only.
"""

WITHOUT_IPV6 = Profile(name="without-ipv6", families=(Family.IPV4,))
"""Nodes whose kernel has IPv6 switched off."""

RESTART = Profile(name="restart", node_port_addresses=("172.18.0.0/24", "fd00:18::/64"), isolated=True)
"""For cases that kill proxies; node ports, as in `NODE_PORT_CIDR`, on the node network only."""

STARTS = Profile(name="starts", zones_at_start=True, environment=(("GOMAXPROCS", "16"),), isolated=True)
"""For cases about what a proxy knows from its start on, each time that it starts.

Programs in Go have more threads there than most machines have processors, and overtake themselves more often
(https://pkg.go.dev/runtime#hdr-Environment_Variables).
"""

WRITES = Profile(name="writes", sync_period="1s", isolated=True)
"""For cases in which the kernel refuses for a while what a proxy writes."""

WRITES_OF_ONE_FAMILY = Profile(name="writes-of-one-family", sync_period="2s", masquerade_bit=6, isolated=True)
"""For cases in which the kernel refuses for a while what a proxy writes for IPv6 alone; and, of no bearing on that, a mark bit
of its own."""

WATCHES = Profile(name="watches", isolated=True)
"""For cases in which the API server lets proxies learn of nothing for a while."""

LARGE = Profile(name="large", isolated=True)
"""For Services with hundreds of endpoints; and, as proxies are never restarted there, for nodes that change their zone."""

LONE_CHANGES = Profile(name="lone-changes", lone_changes=True, min_sync_seconds=1.0, isolated=True)
"""For the one case whose changes nothing follows; another's would make a proxy write again what it had missed.

A proxy may wait with each as long as it does by default (https://kubernetes.io/docs/reference/networking/virtual-ips/).
"""

FLUSHED = Profile(name="flushed", sync_period="1s", masquerade_bit=7, isolated=True)
"""For nodes whose rules of iptables another program removes; and, of no bearing on that, a mark bit of its own."""

REMOVED = Profile(name="removed", isolated=True)
"""For nodes from which the proxy is removed."""

MODE_CHANGE = Profile(name="mode-change", mode_before=True, isolated=True)
"""For proxies that run in another mode before they are restarted in the one that is judged."""

LIBERAL = Profile(
    name="liberal",
    tcp_be_liberal=True,
    close_wait_seconds=3600,
    udp_seconds=45,
    udp_stream_seconds=180,
    masquerade_bit=5,
)
"""Connection tracking that forgives segments outside the window; and, of no bearing on that, a mark bit of its own."""

FORWARD_DROP = Profile(name="forward-drop", forward_drop=True, health_ports_drop=True, isolated=True)
"""Nodes whose firewall lets nothing in by itself; and, as a mistake there harms all, Services at their addresses."""
