"""Health ports by the oracle; expected: upstream's unit tests of service health and KEP-3836, as the clauses cite them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kproxy.model import api
from kproxy.spec.health import (
    LEAVING_TAINT,
    OK,
    REFUSED,
    UNAVAILABLE,
    node_port_clauses,
    node_port_status,
    proxy_clauses,
    proxy_status,
)
from tests.support.spec_world import NODE_A, NODE_B, cluster, endpoint, on, piece, service, terminating

WEB = ("test", "web")
LOCAL: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": 32000}
CHECKED = service(**LOCAL)


@dataclass(frozen=True)
class Row:
    id: str
    objects: tuple[api.Object, ...]
    a: int | None
    b: int | None


ROWS = (
    Row("ready on one node", (CHECKED, on("a1")), OK, UNAVAILABLE),
    Row("ready on both, in two slices", (CHECKED, on("a1"), piece(endpoint("b1"), name="web-2")), OK, OK),
    Row("none", (CHECKED,), UNAVAILABLE, UNAVAILABLE),
    Row("terminating, though serving", (CHECKED, piece(terminating("a1"))), UNAVAILABLE, UNAVAILABLE),
    Row(
        "marked ready while it terminates",
        (CHECKED, piece(endpoint("a1", ready=True, terminating=True))),
        OK,
        UNAVAILABLE,
    ),
    Row("readiness is not written", (CHECKED, piece(endpoint("a1", ready=None))), OK, UNAVAILABLE),
    Row("another Service's", (CHECKED, piece(endpoint("a1"), of="api")), UNAVAILABLE, UNAVAILABLE),
    Row(
        "in a slice with the headless label",
        (
            CHECKED,
            piece(endpoint("a1"), labels={api.HEADLESS_LABEL: ""}),
            piece(endpoint("b1"), name="web-2"),
        ),
        UNAVAILABLE,
        OK,
    ),
    Row("policy Cluster", (service(health_check_node_port=32000), on("a1")), REFUSED, REFUSED),
    Row("no load balancer", (service(**{**LOCAL, "type": "NodePort"}), on("a1")), REFUSED, REFUSED),
    Row("no port is set", (service(external_traffic_policy="Local"), on("a1")), REFUSED, REFUSED),
    Row("no Service", (on("a1"),), REFUSED, REFUSED),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_health_check_node_port_reports_ready_endpoints_of_its_node(row: Row) -> None:
    state = cluster(*row.objects)
    assert [node_port_status(state, name, WEB) for name in ("node-a", "node-b")] == [row.a, row.b]


def tainted(*keys: str) -> api.Node:
    spec = msgspec.structs.replace(NODE_A.spec, taints=[api.Taint(key=key) for key in keys])
    return msgspec.structs.replace(NODE_A, spec=spec)


def deleted() -> api.Node:
    metadata = msgspec.structs.replace(NODE_A.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(NODE_A, metadata=metadata)


@pytest.mark.parametrize(
    ("node", "status"),
    [
        (NODE_A, OK),
        (tainted("node.example/other"), OK),
        (tainted("node.example/other", LEAVING_TAINT), UNAVAILABLE),
        (deleted(), UNAVAILABLE),
        (NODE_B, OK),
    ],
    ids=["plain", "another taint", "leaving", "deleted", "its Node is not known"],
)
def test_a_proxy_is_unhealthy_while_its_node_is_about_to_leave(node: api.Node, status: int) -> None:
    assert proxy_status(cluster(node), "node-a") == status


def test_each_oracle_has_clauses() -> None:
    assert {id.partition(".")[0] for id in node_port_clauses()} == {"health-check"}
    assert {id.partition(".")[0] for id in proxy_clauses()} == {"proxy-health"}
