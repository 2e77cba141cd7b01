"""The oracle against tables written by hand from the catalogue of behaviours."""

from __future__ import annotations

import pytest

from kproxy.model import api
from kproxy.spec.clauses import CLAUSES, TRANSITION_CLAUSES, ClauseId
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import Failure
from tests.support.spec_world import (
    ADDRESS,
    CLUSTER_IP,
    EXTERNAL_IP,
    FACTS,
    NODE_PORT,
    VIP,
    Row,
    client,
    cluster,
    host,
    ingress,
    on,
    outcomes,
    piece,
    pod,
    pods,
    service,
    target,
)
from tests.unit.spec import table_endpoints, table_inside, table_outside, table_policies

TABLE = (*table_inside.TABLE, *table_outside.TABLE, *table_endpoints.TABLE, *table_policies.TABLE)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_the_lawful_outcomes_of_a_packet_are_those_of_the_table(row: Row) -> None:
    found = expect(cluster(*row.objects), row.facts, row.packet)
    assert found.outcomes == outcomes(row.expect), found.clauses
    assert row.clause in found.clauses


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_an_answer_names_few_clauses_each_once_and_none_that_needs_a_history(row: Row) -> None:
    named = expect(cluster(*row.objects), row.facts, row.packet).clauses
    assert 1 <= len(named) <= 7
    assert len(set(named)) == len(named)
    assert not TRANSITION_CLAUSES & set(named)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_row_cites_a_behaviour_of_its_clause_or_of_a_clause_beside_it(row: Row) -> None:
    named = expect(cluster(*row.objects), row.facts, row.packet).clauses
    assert any(row.of in CLAUSES[clause].behaviours for clause in named)


def test_every_clause_that_one_packet_can_show_has_a_row() -> None:
    assert {ClauseId(row.clause) for row in TABLE} == set(CLAUSES) - TRANSITION_CLAUSES


PLAIN = {
    ("pod", "cluster IP"): (
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
    ),
    ("host", "cluster IP"): ("cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.host-rewritten"),
    ("client", "node port"): (
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
    ),
    ("client", "external IP"): (
        "external-ip.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
    ),
    ("client", "load balancer IP"): (
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
    ),
}
SENT = {
    ("pod", "cluster IP"): pod("a2", CLUSTER_IP),
    ("host", "cluster IP"): host(CLUSTER_IP),
    ("client", "node port"): client(ADDRESS["a"], NODE_PORT),
    ("client", "external IP"): client(EXTERNAL_IP),
    ("client", "load balancer IP"): client(VIP),
}


@pytest.mark.parametrize("requested", PLAIN, ids=" to ".join)
def test_a_plain_service_rests_on_two_clauses_only(requested: tuple[str, str]) -> None:
    world = cluster(service(external_ips=[EXTERNAL_IP], vips=(ingress(VIP),)), on("a1", "b1"))
    assert expect(world, FACTS, SENT[requested]).clauses == PLAIN[requested]


def test_other_services_and_their_endpoints_change_nothing() -> None:
    mine = (service(), on("a1"))
    others = (
        service(name="other", cluster_ip="10.96.0.9", external_traffic_policy="Local"),
        piece(*pods("b1"), name="other-1", of="other"),
        service(name="headless", cluster_ip="None"),
    )
    sent = pod("a2", CLUSTER_IP)
    assert expect(cluster(*mine, *others), FACTS, sent) == expect(cluster(*mine), FACTS, sent)


def test_a_slice_of_the_same_name_in_another_namespace_gives_no_endpoint() -> None:
    foreign = api.EndpointSlice(
        metadata=api.Metadata(name="web-1", namespace="elsewhere", labels={api.SERVICE_NAME_LABEL: "web"}),
        endpoints=list(pods("b1")),
        ports=[target()],
    )
    assert expect(cluster(service(), foreign), FACTS, pod("a2", CLUSTER_IP)).outcomes == {Failure.REJECTED}
