"""kube-proxy's names of chains, by which iptables mode and ipvs mode recognise their own and each other's.  Pure."""

from __future__ import annotations

from kproxy.proxy.backends.xtables.rules import TableName

SERVICES = "KUBE-SERVICES"
POSTROUTING = "KUBE-POSTROUTING"
MARK_MASQUERADE = "KUBE-MARK-MASQ"
PROXY_FIREWALL = "KUBE-PROXY-FIREWALL"
FORWARD = "KUBE-FORWARD"

SHARED_CHAINS = {
    TableName.NAT: (SERVICES, POSTROUTING, MARK_MASQUERADE),
    TableName.FILTER: (PROXY_FIREWALL, FORWARD),
}
"""Chains that both modes make."""

NODE_PORT = "KUBE-NODE-PORT"
LOAD_BALANCER = "KUBE-LOAD-BALANCER"
SOURCE_RANGES_FIREWALL = "KUBE-SOURCE-RANGES-FIREWALL"
IPVS_FILTER = "KUBE-IPVS-FILTER"
IPVS_OUT_FILTER = "KUBE-IPVS-OUT-FILTER"
TRAFFIC_POLICY = "KUBE-TRAFFIC-POLICY"
SHORTCUT = "KUBE-LOCAL-SHORTCUT"

IPVS_CHAINS = frozenset(
    {
        *(NODE_PORT, LOAD_BALANCER, SOURCE_RANGES_FIREWALL, IPVS_FILTER),
        *(IPVS_OUT_FILTER, TRAFFIC_POLICY, SHORTCUT),
    }
)
"""Chains that only ipvs mode makes, in any table."""
