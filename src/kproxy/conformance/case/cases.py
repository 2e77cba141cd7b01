"""Case, the profile it runs under, and the features it needs. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from kproxy.conformance.case.steps import Probe, Step
from kproxy.model.network import Family


class Feature(enum.Enum):
    """Feature that a subject may leave out; its absence is a claim, not a failure."""

    NODE_PORT = "NodePort"
    EXTERNAL_IPS = "externalIPs"
    LOAD_BALANCER = "LoadBalancer"
    SOURCE_RANGES = "loadBalancerSourceRanges"
    INTERNAL_TRAFFIC_POLICY = "internalTrafficPolicy"
    EXTERNAL_TRAFFIC_POLICY = "externalTrafficPolicy"
    SESSION_AFFINITY = "sessionAffinity"
    TOPOLOGY_HINTS = "topologyHints"
    TERMINATING_ENDPOINTS = "terminatingEndpoints"
    IPV6 = "IPv6"
    SCTP = "SCTP"
    LOCALHOST_NODE_PORTS = "localhostNodePorts"
    DETECT_LOCAL = "detectLocalMode"
    MASQUERADE_ALL = "masqueradeAll"
    RESTART = "restart"
    CONNTRACK_SETTINGS = "conntrackSettings"
    FORWARD_POLICY = "forwardPolicyDrop"
    INPUT_POLICY = "inputPolicyDrop"
    EXTERNAL_IPS_OF_NODES = "externalIPsOfNodes"
    HEALTH_CHECKS = "healthCheckNodePort"
    PROXY_HEALTH = "proxyHealth"
    SHARED_SOURCE_PORT = "sharedSourcePort"
    INCOMPLETE_ENDPOINT_PORTS = "incompleteEndpointPorts"
    REFUSED_WRITES = "refusedWrites"
    FLUSHED_RULES = "flushedRules"
    FLUSHED_ADDRESSES = "flushedAddresses"
    CLEANUP = "cleanup"
    MODE_CHANGE = "modeChange"
    CONNECTION_RETRY = "connectionRetry"


OPTIONAL_FEATURES = frozenset({Feature.CONNECTION_RETRY, Feature.FLUSHED_ADDRESSES})
"""Features that a subject has only where it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Proxy configuration that cases share; each profile is one lab.

    Fields are those of KubeProxyConfiguration; addresses are those of `kproxy.lab.topology`. ``detect_mode`` None:
    mode ClusterCIDR without a CIDR (no detector); ``detect_families``: those that clusterCIDR has a range of.
    """

    name: str
    detect_mode: str | None = "ClusterCIDR"
    detect_interface: str = ""
    detect_families: tuple[Family, ...] = tuple(Family)
    masquerade_all: bool = False
    masquerade_bit: int = 14
    node_port_addresses: tuple[str, ...] = ()
    localhost_node_ports: bool | None = None
    allow_external_ips: bool = True
    tcp_be_liberal: bool = False
    close_wait_seconds: int = 0
    udp_seconds: int = 0
    udp_stream_seconds: int = 0
    """Timeouts of conntrack in seconds; 0 leaves the kernel's."""
    forward_drop: bool = False
    """Nodes drop forwarded packets after translation, unless a rule above accepts them."""
    health_ports_drop: bool = False
    """Nodes drop packets to health check node ports, unless a rule above accepts them."""
    families: tuple[Family, ...] = tuple(Family)
    """Families of the nodes; without IPv6, the kernels have it disabled."""
    sync_period: str = "30s"
    """``syncPeriod``: failed writes are retried after this time, and after twice as long the proxy is unhealthy."""
    min_sync_seconds: float = 0.0
    """``minSyncPeriod`` in seconds; 0: the subject's in labs (`Subject.min_sync_period`), which makes cases quick."""
    zones_at_start: bool = False
    """Nodes have their zone label before proxies start.

    In other profiles it is added while they run, as by a cloud's controller.
    """
    mode_before: bool = False
    """A node's proxy runs in another of the subject's modes until its restart (`Subject.mode_before`)."""
    lone_changes: bool = False
    """From the second round on nothing but its case's own changes is written.

    Elsewhere a Service of the lab follows each round, and makes a proxy write again, what it had missed included.
    """
    environment: tuple[tuple[str, str], ...] = ()
    """Additional environment variables of the subject's processes, as pairs."""
    isolated: bool = False
    """Its cases disturb one another (restart, relabel): they still run in parallel, in this lab only."""


DEFAULT = Profile(name="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test of a service proxy. ``clauses``: exactly those that its steps check."""

    id: str
    about: str
    clauses: frozenset[str]
    steps: tuple[Step, ...]
    features: frozenset[Feature] = frozenset()
    regressions: frozenset[str] = frozenset()
    profile: Profile = DEFAULT
    families: tuple[Family, ...] = (Family.IPV4, Family.IPV6)
    slow: bool = False
    """Left out of the default set: it has to wait for real time to pass."""
    notes: str = field(default="")

    @property
    def group(self) -> str:
        """First part of its ID, up to the dot."""
        return self.id.partition(".")[0]

    @property
    def opens_sctp_sockets(self) -> bool:
        """True if the kernel itself must support SCTP, not only its netfilter."""
        return Feature.SCTP in self.features and not any(
            isinstance(s, Probe) and s.init_chunk_only for s in self.steps
        )


def case(id: str, about: str, *steps: Step, clauses: set[str], **fields: object) -> Case:
    """`Case` from its steps, with sets from any collections."""
    for name in ("features", "regressions"):
        if name in fields:
            fields[name] = frozenset(fields[name])  # type: ignore[call-overload]
    return Case(id=id, about=about, steps=steps, clauses=frozenset(clauses), **fields)  # type: ignore[arg-type]
