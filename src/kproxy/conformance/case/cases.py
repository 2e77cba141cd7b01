"""A case, the profile it runs under, and the features it needs.  Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from kproxy.conformance.case.steps import Probe, Step
from kproxy.model.network import Family


class Feature(enum.Enum):
    """Something a subject may leave out; its absence is a claim, not a failure."""

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
    MODE_CHANGE = "modeChange"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A proxy configuration that cases share; each profile is one lab.

    Fields are those of KubeProxyConfiguration; addresses are those of `kproxy.lab.topology`.
    ``detect_mode`` None: mode ClusterCIDR without a CIDR (no detector); ``detect_families``: those that
    clusterCIDR has a range of.
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
    """Timeouts of connection tracking; 0 leaves the kernel's."""
    forward_drop: bool = False
    """Whether nodes drop what they would forward after translation, unless a rule above accepts it."""
    health_ports_drop: bool = False
    """Whether nodes drop what comes in for health check node ports, unless a rule above accepts it."""
    families: tuple[Family, ...] = tuple(Family)
    """Those that the nodes have; the kernels of others have IPv6 switched off."""
    sync_period: str = "30s"
    """After so long what could not be written is tried again, and after twice as long the proxy is not healthy."""
    zones_at_start: bool = False
    """Whether Nodes have their zone label before proxies start.  Elsewhere it comes when they run, as from a cloud's controller."""
    mode_before: bool = False
    """Whether a node's proxy runs in another of the subject's modes until its restart (`Subject.mode_before`)."""
    environment: tuple[tuple[str, str], ...] = ()
    """What the subject's processes have in theirs besides, as pairs."""
    isolated: bool = False
    """Its cases disturb one another (restart, relabel): they still run in parallel, in this lab only."""


DEFAULT = Profile(name="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question to a service proxy.  ``clauses``: exactly those that its steps hold it to."""

    id: str
    about: str
    clauses: frozenset[str]
    steps: tuple[Step, ...]
    features: frozenset[Feature] = frozenset()
    regressions: frozenset[str] = frozenset()
    profile: Profile = DEFAULT
    families: tuple[Family, ...] = (Family.IPV4, Family.IPV6)
    slow: bool = False
    """Left out of the default set: it must wait for real time to pass."""
    notes: str = field(default="")

    @property
    def group(self) -> str:
        """The first word of its ID."""
        return self.id.partition(".")[0]

    @property
    def opens_sctp_sockets(self) -> bool:
        """Whether the kernel must have SCTP itself, and not only its netfilter."""
        return Feature.SCTP in self.features and not any(
            isinstance(s, Probe) and s.init_chunk_only for s in self.steps
        )


def case(id: str, about: str, *steps: Step, clauses: set[str], **fields: object) -> Case:
    """Shorthand: a `Case` from its steps."""
    for name in ("features", "regressions"):
        if name in fields:
            fields[name] = frozenset(fields[name])  # type: ignore[call-overload]
    return Case(id=id, about=about, steps=steps, clauses=frozenset(clauses), **fields)  # type: ignore[arg-type]
