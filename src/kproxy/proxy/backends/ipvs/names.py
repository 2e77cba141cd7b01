"""kube-proxy's names of the device, the ipsets and the chains, on which operators and tools rely.  Pure."""

from __future__ import annotations

import enum

from kproxy.model.network import Family
from kproxy.proxy.backends import SERVICE_DEVICE
from kproxy.proxy.backends.xtables import names as xtables

DEVICE = SERVICE_DEVICE
_LONGEST_SET_NAME = 31


class SetType(enum.Enum):
    """Type of an ipset; the value is the kernel's name of it."""

    ADDRESS = "hash:ip"
    ADDRESS_PORT = "hash:ip,port"
    ADDRESS_PORT_ADDRESS = "hash:ip,port,ip"
    ADDRESS_PORT_NETWORK = "hash:ip,port,net"
    PORT = "bitmap:port"


class IpSet(enum.Enum):
    """An ipset; the value is its name after ``KUBE-`` or ``KUBE-6-`` (``ipvs.ipsets``, ``ds.ipvs-names``).

    The last four, `OWN_SETS`, kube-proxy does not have: addresses served on the device, those (internal and external) whose
    policy Local finds no endpoint on this node, and those that the node and its pods reach by a shortcut, with its mark.
    """

    CLUSTER_IP = "CLUSTER-IP"
    EXTERNAL_IP = "EXTERNAL-IP"
    EXTERNAL_IP_LOCAL = "EXTERNAL-IP-LOCAL"
    LOAD_BALANCER = "LOAD-BALANCER"
    LOAD_BALANCER_LOCAL = "LOAD-BALANCER-LOCAL"
    LOAD_BALANCER_FIREWALL = "LOAD-BALANCER-FW"
    LOAD_BALANCER_SOURCE_IP = "LOAD-BALANCER-SOURCE-IP"
    LOAD_BALANCER_SOURCE_CIDR = "LOAD-BALANCER-SOURCE-CIDR"
    LOOP_BACK = "LOOP-BACK"
    NODE_PORT_TCP = "NODE-PORT-TCP"
    NODE_PORT_LOCAL_TCP = "NODE-PORT-LOCAL-TCP"
    NODE_PORT_UDP = "NODE-PORT-UDP"
    NODE_PORT_LOCAL_UDP = "NODE-PORT-LOCAL-UDP"
    NODE_PORT_SCTP = "NODE-PORT-SCTP-HASH"
    NODE_PORT_LOCAL_SCTP = "NODE-PORT-LOCAL-SCTP-HASH"
    HEALTH_CHECK_NODE_PORT = "HEALTH-CHECK-NODE-PORT"
    IPVS_IPS = "IPVS-IPS"
    SERVED = "IPVS-SERVED"
    CLUSTER_IP_UNANSWERED = "CLUSTER-IP-NO-LOCAL"
    EXTERNAL_UNANSWERED = "EXTERNAL-NO-LOCAL"
    SHORTCUT = "LOCAL-SHORTCUT"

    @property
    def type(self) -> SetType:
        """Its type."""
        return _TYPES.get(self, SetType.ADDRESS_PORT)


OWN_SETS = frozenset({IpSet.SERVED, IpSet.CLUSTER_IP_UNANSWERED, IpSet.EXTERNAL_UNANSWERED, IpSet.SHORTCUT})

_TYPES = {
    IpSet.LOOP_BACK: SetType.ADDRESS_PORT_ADDRESS,
    IpSet.LOAD_BALANCER_SOURCE_IP: SetType.ADDRESS_PORT_ADDRESS,
    IpSet.LOAD_BALANCER_SOURCE_CIDR: SetType.ADDRESS_PORT_NETWORK,
    IpSet.NODE_PORT_TCP: SetType.PORT,
    IpSet.NODE_PORT_LOCAL_TCP: SetType.PORT,
    IpSet.NODE_PORT_UDP: SetType.PORT,
    IpSet.NODE_PORT_LOCAL_UDP: SetType.PORT,
    IpSet.HEALTH_CHECK_NODE_PORT: SetType.PORT,
    IpSet.IPVS_IPS: SetType.ADDRESS,
}

UNMASQUERADED = {
    IpSet.EXTERNAL_IP_LOCAL: IpSet.EXTERNAL_IP,
    IpSet.LOAD_BALANCER_LOCAL: IpSet.LOAD_BALANCER,
    IpSet.NODE_PORT_LOCAL_TCP: IpSet.NODE_PORT_TCP,
    IpSet.NODE_PORT_LOCAL_UDP: IpSet.NODE_PORT_UDP,
    IpSet.NODE_PORT_LOCAL_SCTP: IpSet.NODE_PORT_SCTP,
}
"""Sets whose members are not masqueraded, each with the set of all members of the kind (of external IPs: of the others)."""


def set_name(which: IpSet, family: Family) -> str:
    """The name in the kernel, at most 31 characters."""
    prefix = "KUBE-6-" if family is Family.IPV6 else "KUBE-"
    return (prefix + which.value)[:_LONGEST_SET_NAME]


SERVICES = xtables.SERVICES
POSTROUTING = xtables.POSTROUTING
MARK_MASQUERADE = xtables.MARK_MASQUERADE
NODE_PORT = xtables.NODE_PORT
LOAD_BALANCER = xtables.LOAD_BALANCER
FORWARD = xtables.FORWARD
PROXY_FIREWALL = xtables.PROXY_FIREWALL
SOURCE_RANGES_FIREWALL = xtables.SOURCE_RANGES_FIREWALL
IPVS_FILTER = xtables.IPVS_FILTER
IPVS_OUT_FILTER = xtables.IPVS_OUT_FILTER
TRAFFIC_POLICY = xtables.TRAFFIC_POLICY
EXTERNAL_POLICY = xtables.EXTERNAL_POLICY
SHORTCUT = xtables.SHORTCUT
