"""Clauses that no code of the proxy answers to, each with the reason: they hold by what the proxy does not do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kproxy.spec.clauses import clause

_PRESENT = (
    "the plan is made of the objects as they are now, not of changes (`make_plan`), so every change is in it"
)
_NO_PAST = "the first plan after a start is made as any other is; what the kernel holds besides is removed"
_FIRST_PACKET = "rules see the first packet of a connection only, and no entry of TCP is ever removed"
_ANY_ADDRESS = "no code looks at what kind of address it is"

NO_CODE: Mapping[str, str] = MappingProxyType(
    {
        clause(id): reason
        for reason, ids in {
            _PRESENT: """
                change.endpoint-added.used change.endpoint-removed.not-used change.last-endpoint-removed.rejected
                change.readiness.followed change.endpoint-moved-between-slices.undisturbed
                change.order-of-arrival.irrelevant change.port-added.served change.port-removed.not-served
                change.type.followed change.address.followed change.policy.followed change.source-ranges.followed
                change.labels.followed change.topology.followed change.service-deleted.not-served
                change.service-recreated.served affinity.switched-on-and-off""",
            _NO_PAST: "restart.changes-while-down.applied",
            _FIRST_PACKET: """
                established.survives-endpoint-change established.survives-termination-of-its-endpoint
                established.survives-proxy-restart""",
            _ANY_ADDRESS: """
                cluster-ip.any-range.served slices.endpoint.host-network.reached
                slices.endpoint.outside-cluster.reached""",
            "rules match addresses of Services only": "traffic.not-for-a-service.untouched",
            "a transaction has the rules of changed Services only; all others stay in the kernel": """
                change.other-services.undisturbed""",
            "netfilter translates fragments and large packets by itself": "payload.large.passes",
            "a node that is to be removed only answers /healthz otherwise": "proxy-health.leaving-node.serves",
            "rules name SCTP by its protocol number, and no socket is opened": """
                protocol.sctp.without-sockets.served""",
        }.items()
        for id in ids.split()
    }
)
"""Clause to reason.  A clause that the proxy cites is not in it: tests/unit/proxy/test_cited_clauses.py."""
