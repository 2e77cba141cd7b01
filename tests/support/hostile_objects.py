"""Hostile API objects for tests: documents that no API server should accept, and one good Service among them.

Texts can be anything: quotes, line ends, metacharacters of shells and of nft, commands of the tools, 300 characters;
numbers can be no port; fields can be of another type.  No other object has the good Service's cluster IP or node port in
the same field, since the API server guarantees that.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

ORDERS = (
    'x" -j ACCEPT -m comment --comment "',
    "x\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n",
    "*nat\n-F\nCOMMIT",
    "-A KUBE-SERVICES -j DROP",
    "x; nft flush ruleset",
    'x" } ; flush ruleset ; add table ip evil { comment "',
    "}\nadd rule ip kube-proxy services drop\n",
    "destroy KUBE-CLUSTER-IP\nadd KUBE-CLUSTER-IP 1.2.3.4,tcp:80",
    "$(reboot)",
    "`reboot`",
    "| tee /etc/passwd",
    "../../../api/v1/secrets?watch=true#",
    "%s%n%00",
    "{0.__class__}",
)
ODDITIES = (
    '"',
    "'",
    "\\",
    "\n",
    "\r\n",
    "\0",
    "\x1b[2J",
    "a b",
    "web\n",
    "-web",
    "WEB",
    "é" * 130,
    "\u2028",
    "\U0001f600",
    "\ud800",
    "x" * 300,
    '"\n' * 150,
)
SPELLS = st.sampled_from(ORDERS + ODDITIES)

NAME_PARTS = ("web", "dns", "evil", "default")
"""Good names; never the good Service's namespace."""

CLUSTER_IPS = tuple(f"10.96.1.{n}" for n in range(1, 9)) + tuple(f"fd00:96::1:{n}" for n in range(1, 9))
GOOD_IPS = ("10.96.0.10", "fd00:96::a")
ADDRESSES = ("10.1.0.1", "10.1.0.2", "fd00:10::1", "fd00:10::2", "192.0.2.7", *GOOD_IPS)
NO_ADDRESSES = (
    "10.0.0",
    "10.1.0.1\n10.1.0.2",
    "10.1.0.1 -j DROP",
    "10.1.0.1/32; flush ruleset",
    "fe80::1%eth0",
    "::ffff:10.1.0.9",
    "0x0a.1.0.1",
    "00000000010.1.0.1",
    "\u0660.\u0660.\u0660.\u0660",
)
NETWORKS = ("10.0.0.0/8", "fd00::/64", "10.1.0.1/32", "10.0.0.0/33", "10.0.0.0/8/8", "/8", "10.0.0.0/-1")
NODE = "node-1"

numbers = st.one_of(
    st.sampled_from((80, 443, 8080, 31000, 1, 65535)),
    st.sampled_from((0, -1, 65536, 70000, 2**31, 2**63, -(2**63), 2**64, 10**40)),
)
strange = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    numbers,
    SPELLS,
    st.builds(list),
    st.builds(dict),
)
"""Values of unexpected types."""

texts = st.one_of(
    SPELLS,
    st.text(max_size=12),
    st.builds(lambda word, spell: word + spell, st.sampled_from(NAME_PARTS), SPELLS),
)


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 3).flatmap(lambda number: other if number == 3 else usual)


def few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=3)


names = mostly(st.sampled_from(NAME_PARTS), texts)
addresses = mostly(st.sampled_from(ADDRESSES), st.one_of(st.sampled_from(NO_ADDRESSES), texts))
networks = mostly(st.sampled_from(NETWORKS), texts)
protocols = mostly(st.sampled_from(("TCP", "UDP", "SCTP")), texts)
port_names = mostly(st.sampled_from(("", "http", "dns")), texts)
labels = st.dictionaries(mostly(st.just("topology.kubernetes.io/zone"), texts), texts, max_size=2)
remarks = st.dictionaries(
    st.just("endpoints.kubernetes.io/last-change-trigger-time"),
    mostly(st.sampled_from(("2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00")), texts),
    max_size=1,
)


def metadata(more: st.SearchStrategy[dict[str, str]] = labels) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries(
        {"namespace": names, "name": names, "uid": texts, "labels": more, "annotations": remarks}
    )


service_parts = st.fixed_dictionaries(
    {
        "kind": st.just("Service"),
        "metadata": metadata(),
        "spec": st.fixed_dictionaries(
            {
                "type": mostly(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer")), texts),
                "clusterIPs": few(
                    mostly(st.sampled_from(CLUSTER_IPS), st.one_of(st.sampled_from(NO_ADDRESSES), texts))
                ),
                "ports": few(
                    st.fixed_dictionaries(
                        {
                            "name": port_names,
                            "protocol": protocols,
                            "port": numbers,
                            "nodePort": numbers,
                            "targetPort": texts,
                        }
                    )
                ),
                "externalIPs": few(addresses),
                "loadBalancerSourceRanges": few(networks),
                "externalTrafficPolicy": mostly(st.sampled_from(("Local", "Cluster")), texts),
                "internalTrafficPolicy": mostly(st.sampled_from(("Local", "Cluster")), texts),
                "sessionAffinity": mostly(st.sampled_from(("None", "ClientIP")), texts),
                "sessionAffinityConfig": st.fixed_dictionaries(
                    {"clientIP": st.fixed_dictionaries({"timeoutSeconds": numbers})}
                ),
                "healthCheckNodePort": numbers,
            }
        ),
        "status": st.fixed_dictionaries(
            {
                "loadBalancer": st.fixed_dictionaries(
                    {"ingress": few(st.fixed_dictionaries({"ip": addresses, "hostname": texts}))}
                )
            }
        ),
    }
)
"""Made once, as all below: Hypothesis validates each strategy that it has not seen, which takes longer than to draw from it."""


@st.composite
def services(draw: st.DrawFn) -> Document:
    document: Document = draw(service_parts)
    ips = document["spec"]["clusterIPs"]
    document["spec"]["clusterIP"] = ips[0] if ips else draw(texts)
    return document


slices = st.fixed_dictionaries(
    {
        "kind": st.just("EndpointSlice"),
        "metadata": metadata(st.fixed_dictionaries({"kubernetes.io/service-name": names})),
        "addressType": mostly(st.sampled_from(("IPv4", "IPv6")), texts),
        "endpoints": few(
            st.fixed_dictionaries(
                {
                    "addresses": few(addresses),
                    "nodeName": mostly(st.just(NODE), texts),
                    "zone": texts,
                    "hints": st.fixed_dictionaries({"forZones": few(st.fixed_dictionaries({"name": texts}))}),
                    "conditions": st.fixed_dictionaries({"ready": st.booleans()}),
                }
            )
        ),
        "ports": few(st.fixed_dictionaries({"name": port_names, "protocol": protocols, "port": numbers})),
    }
)

nodes = st.fixed_dictionaries(
    {
        "kind": st.just("Node"),
        "metadata": st.fixed_dictionaries({"name": mostly(st.just(NODE), texts), "labels": labels}),
        "spec": st.fixed_dictionaries(
            {
                "podCIDR": networks,
                "podCIDRs": few(networks),
                "taints": few(st.fixed_dictionaries({"key": texts, "effect": texts})),
            }
        ),
        "status": st.fixed_dictionaries(
            {
                "addresses": few(
                    st.fixed_dictionaries(
                        {
                            "type": mostly(st.sampled_from(("InternalIP", "ExternalIP", "Hostname")), texts),
                            "address": addresses,
                        }
                    )
                )
            }
        ),
    }
)

service_cidrs = st.fixed_dictionaries(
    {
        "kind": st.just("ServiceCIDR"),
        "metadata": st.fixed_dictionaries({"name": names}),
        "spec": st.fixed_dictionaries({"cidrs": few(networks)}),
    }
)
kinds = st.one_of(services(), services(), slices, slices, nodes, service_cidrs)
depths = st.integers(-5, 2)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """One hostile object; in one of four some field is of another type than it should be."""
    document: Document = draw(kinds)
    for _ in range(max(0, draw(depths))):
        _spoil(draw, document)
    return document


def _spoil(draw: st.DrawFn, document: Document) -> None:
    place: Any = document
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        keys = [key for key in keys if not (place is document and key == "kind")]
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inside = place[key]
        if not isinstance(inside, dict | list) or not inside or draw(st.booleans()):
            place[key] = draw(strange)
            return
        place = inside


def encoded(document: Document) -> bytes:
    """Its JSON; half a surrogate pair becomes bytes that are no UTF-8."""
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def good_service() -> list[Document]:
    """A Service of both families with every exposure, and its slices, which hostile objects must not affect."""
    four, six = GOOD_IPS
    spec = {
        "type": "LoadBalancer",
        "clusterIP": four,
        "clusterIPs": [four, six],
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080},
            {"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053},
        ],
        "sessionAffinity": "ClientIP",
        "externalIPs": ["198.51.100.10"],
        "loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8::/64"],
    }
    ingress = [{"ip": "198.51.100.20"}, {"ip": "2001:db8:20::1"}]
    found: list[Document] = [
        {
            "kind": "Service",
            "metadata": {"namespace": "good", "name": "web"},
            "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        }
    ]
    for family, backends in (
        ("IPv4", ("10.244.0.1", "10.244.1.1")),
        ("IPv6", ("fd00:244::1", "fd00:244:1::1")),
    ):
        found.append(
            {
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": "good",
                    "name": f"web-{family.lower()}",
                    "labels": {"kubernetes.io/service-name": "web"},
                },
                "addressType": family,
                "endpoints": [{"addresses": [text], "nodeName": NODE} for text in backends],
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": 8080},
                    {"name": "dns", "protocol": "UDP", "port": 5353},
                ],
            }
        )
    return found
