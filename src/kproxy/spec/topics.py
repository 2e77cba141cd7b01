"""The topics of the specification: the one partition that clauses, cases, behaviours, mutants and docs share.

Only data.  A topic has a page in ``docs/spec/topics``, and most have a file of that name (``-`` written ``_`` in Python) in
`kproxy.spec.clauses`, `kproxy.conformance.cases` and ``tests/mutants``.  An ID may begin with another word than its topic's name:
`topic_of_clause` and `topic_of_case` find the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Topic:
    """A part of what a service proxy does.

    ``areas``: first parts of IDs of clauses; ``groups``: first parts of IDs of cases.
    """

    name: str
    about: str
    areas: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The name as that of a Python module."""
        return self.name.replace("-", "_")


_LIST = (
    Topic(
        "objects",
        "Which Services, IP families and packets are a proxy's business at all.",
        ("objects", "traffic"),
        ("objects",),
    ),
    Topic("cluster-ip", "Connections to cluster IPs.", ("cluster-ip",), ("cluster-ip",)),
    Topic(
        "node-port",
        "Connections to node ports, and which addresses of a node have them.",
        ("node-port",),
        ("node-port",),
    ),
    Topic(
        "external-ip",
        "Connections to external IPs, and to ports of external addresses that no Service defines.",
        ("external-ip", "external-address"),
        ("external-ip",),
    ),
    Topic("load-balancer", "Connections to load balancer IPs.", ("load-balancer",), ("load-balancer",)),
    Topic(
        "source-ranges",
        "Which sources loadBalancerSourceRanges lets reach a load balancer IP.",
        ("source-ranges",),
        ("source-ranges",),
    ),
    Topic(
        "endpoints",
        "Which endpoints of a Service's slices may answer, ready or terminating, and what happens when none may.",
        ("slices", "endpoints"),
        ("readiness", "terminating", "scale", "no-endpoints"),
    ),
    Topic("internal-policy", "internalTrafficPolicy.", ("internal-policy",), ("internal-policy",)),
    Topic("external-policy", "externalTrafficPolicy.", ("external-policy",), ("external-policy",)),
    Topic("topology", "Hints that keep traffic in a zone or on a node.", ("topology",), ("topology",)),
    Topic(
        "masquerade",
        "The source address that an endpoint sees, hairpin included.",
        ("masquerade",),
        ("masquerade",),
    ),
    Topic(
        "detect-local", "How pods are distinguished from other senders.", ("detect-local",), ("detect-local",)
    ),
    Topic("protocol", "TCP, UDP and SCTP, side by side.", ("protocol",), ("protocols",)),
    Topic("balancing", "How connections spread over endpoints.", ("balancing",), ("balancing",)),
    Topic("change", "Changes of objects, and how soon they are in effect.", ("change",), ("convergence",)),
    Topic(
        "restart",
        "What the proxy's stop, start and changed configuration do, and what it leaves where it is removed.",
        ("restart", "cleanup"),
        ("restart", "cleanup"),
    ),
    Topic(
        "writes",
        "Writes that the kernel refuses, and rules that another program removes.",
        ("writes", "rules"),
        ("writes", "rules"),
    ),
    Topic("watch", "Watches that break, and events that come together.", ("watch",), ("watches",)),
    Topic(
        "conntrack",
        "Flows that last: established connections, stale and invalid connection tracking entries.",
        ("established", "conntrack"),
        ("established", "conntrack"),
    ),
    Topic("affinity", "Session affinity by client IP.", ("affinity",), ("affinity",)),
    Topic(
        "icmp",
        "Packets larger than a link takes, ICMP errors about served flows, and pings.",
        ("payload", "icmp"),
        ("icmp",),
    ),
    Topic(
        "health",
        "What load balancers learn of a node: health check node ports, and the proxy's own health.",
        ("health-check", "proxy-health"),
        ("health-check", "proxy-health"),
    ),
    Topic("metrics", "Metrics and debugging pages of the proxy's process."),
    Topic("configuration", "The proxy's configuration file and flags."),
    Topic("ipvs", "What ipvs mode alone keeps in the kernel."),
)

TOPICS: Mapping[str, Topic] = MappingProxyType({topic.name: topic for topic in _LIST})
"""Every topic by its name, in reading order."""

_BY_AREA = {area: topic for topic in _LIST for area in topic.areas}
_BY_GROUP = {group: topic for topic in _LIST for group in topic.groups}


def topic_of_clause(id: str) -> Topic:
    """The topic of a clause's ID; `KeyError` if its area is of none."""
    return _BY_AREA[id.partition(".")[0]]


def topic_of_case(id: str) -> Topic:
    """The topic of a case's ID; `KeyError` if its group is of none."""
    return _BY_GROUP[id.partition(".")[0]]
