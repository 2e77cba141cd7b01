"""Configuration files for a subject: a profile as KubeProxyConfiguration, and a kubeconfig.

Pure: text in memory; the testbed writes it to disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from kproxy.conformance.case import Profile
from kproxy.lab.topology import LAB

HEALTHZ_PORT = 10256

INTERFACE_FIELDS = {"BridgeInterface": "bridgeInterface", "InterfaceNamePrefix": "interfaceNamePrefix"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfiguration:
    """Per-node values of a subject's configuration; paths are on the machine that runs the lab.

    ``hostname`` and ``cluster_cidrs``: the Node's name and the pods' ranges, if not those of the topology.
    """

    node: str
    mode: str
    hostname: str = ""
    kubeconfig: str
    min_sync_period: str = "10ms"
    healthz: str = f"0.0.0.0:{HEALTHZ_PORT}"
    metrics: str = "127.0.0.1:10249"
    cluster_cidrs: tuple[str, ...] = ()


def kube_proxy_configuration(profile: Profile, node: NodeConfiguration) -> str:
    """KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) of a node under a profile, as YAML.

    ``conntrack.maxPerCore`` is 0 since nf_conntrack_max is read-only in a network namespace.  The section of a mode that
    does not run holds other values, which must have no effect; ipvs mode reads the one of iptables.
    """
    periods = {"syncPeriod": profile.sync_period, "minSyncPeriod": node.min_sync_period}
    masquerade = {"masqueradeAll": profile.masquerade_all, "masqueradeBit": profile.masquerade_bit}
    unread = {"masqueradeAll": not profile.masquerade_all, "masqueradeBit": profile.masquerade_bit ^ 1}
    document: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": node.mode,
        "clientConnection": {"kubeconfig": node.kubeconfig},
        "hostnameOverride": node.hostname or LAB.hostnames[node.node],
        "healthzBindAddress": node.healthz,
        "metricsBindAddress": node.metrics,
        "iptables": {**periods, **(unread if node.mode == "nftables" else masquerade)},
        "nftables": {**periods, **(unread if node.mode != "nftables" else masquerade)},
        "ipvs": {**periods, "udpTimeout": "600s"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": f"{profile.close_wait_seconds}s",
            "tcpBeLiberal": profile.tcp_be_liberal,
            "udpTimeout": f"{profile.udp_seconds}s",
            "udpStreamTimeout": f"{profile.udp_stream_seconds}s",
        },
        "featureGates": {} if profile.allow_external_ips else {"AllowServiceExternalIPs": False},
        "nodePortAddresses": list(profile.node_port_addresses),
        "detectLocalMode": profile.detect_mode or "ClusterCIDR",
    }
    if profile.localhost_node_ports is not None:
        document["iptables"]["localhostNodePorts"] = profile.localhost_node_ports
    if profile.detect_mode == "ClusterCIDR":
        own = [str(LAB.cluster_cidr[family]) for family in profile.detect_families]
        document["clusterCIDR"] = ",".join(node.cluster_cidrs or own)
    if profile.detect_mode in INTERFACE_FIELDS:
        document["detectLocal"] = {INTERFACE_FIELDS[profile.detect_mode]: profile.detect_interface}
    return str(yaml.safe_dump(document, sort_keys=False))
