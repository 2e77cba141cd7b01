"""A case in a file: what `kproxy conformance fuzz` writes of any step can be read, and what cannot be bound is refused."""

import re
from collections.abc import Iterator

import pytest

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Delete,
    Lawful,
    Open,
    Ping,
    Port,
    Probe,
    Reopen,
    Send,
    Step,
    Type,
    Wait,
    case,
    client,
    delivered_to,
    endpoint_target,
    pod,
    service,
)
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.generate.case_files import InvalidCaseFile, parse_case_file
from kproxy.conformance.generate.case_source import case_source
from kproxy.model.network import Family

WEB = service("web", "a1", "b1", type=Type.NODE_PORT)
REACHES = "cluster-ip.reaches-ready-endpoint"


def world(*steps: Step) -> Case:
    return case("fuzz.world-1-1", "It was generated.", *steps, clauses={REACHES}, families=(Family.IPV4,))


def lawful_sets() -> Iterator[Lawful]:
    yield delivered_to("a1", "b1")
    yield delivered_to("b1", source=MASQUERADED) | REJECTED
    yield DROPPED | UNTOUCHED


@pytest.mark.parametrize("lawful", list(lawful_sets()))
def test_a_held_flow_is_read_as_it_was_written(lawful: Lawful) -> None:
    made = world(
        Apply(WEB),
        Open(flow="f", sender=pod("a2"), to=WEB.cluster_ip, expect=lawful),
        Open(flow="g", sender=client("a"), to=WEB.node_port("a"), expect=lawful, same_port_as="f"),
        Send(flow="f", expect=SAME_ENDPOINT, clauses=("established.survives-endpoint-change",)),
        Send(flow="g", expect=lawful),
        Reopen(flow="f", expect=lawful),
        Ping(sender=pod("a2"), to=WEB.cluster_ip, expect=lawful),
        Wait(0.5),
        Delete(WEB),
    )
    assert parse_case_file(case_source(made, "Described."), "file") == made


@pytest.mark.parametrize("made", [pytest.param(one, id=one.id) for one in CATALOGUE])
def test_every_case_of_the_catalogue_is_read_as_it_was_written(made: Case) -> None:
    kept = parse_case_file(case_source(made, "Described."), "file")
    assert (kept.steps, kept.clauses, kept.families) == (made.steps, made.clauses, made.families)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            world(Apply(service("web", "a1", ports=(Port(name="http"),)))),
            "port names of cases are ('', 'a', 'b', 'c'), not 'http'",
        ),
        (
            world(Apply(WEB), Probe(sender=pod("a2"), to=service("other").cluster_ip, expect=DROPPED)),
            "no step applies Service 'other'",
        ),
        (world(Apply(service("web", "z9"))), "'z9'"),
        (world(Apply(WEB), Probe(sender=pod("z9"), to=WEB.cluster_ip, expect=DROPPED)), "'z9'"),
        (world(Apply(WEB), Send(flow="f", expect=SAME_ENDPOINT)), "flow 'f' is not opened before it is used"),
        (world(Delete(WEB)), "deletes Service 'web', which no step before it applies"),
    ],
)
def test_a_case_that_cannot_be_bound_is_refused_with_its_file_and_why(made: Case, reason: str) -> None:
    with pytest.raises(InvalidCaseFile, match=f"^my.py: .*{re.escape(reason)}"):
        parse_case_file(case_source(made, "Described."), "my.py")


def test_old_names_are_still_read() -> None:
    made = world(
        Apply(WEB),
        Open(flow="f", sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
        Open(flow="g", sender=client("a"), to=WEB.node_port("a"), expect=DROPPED, same_port_as="f"),
        Send(flow="f", expect=SAME_ENDPOINT),
        Probe(sender=pod("a2"), to=endpoint_target(WEB, "b1"), expect=UNTOUCHED),
    )
    old = case_source(made, "Described.")
    for now, then in (
        ("Open(", "Hold("),
        ("Send(", "Use("),
        ("same_port_as=", "port_of="),
        ("SourceIP", "Source"),
        ("SAME_ENDPOINT", "STILL"),
        ("SameEndpoint.", "Still."),
        ("CaseEndpoint(", "Backend("),
        ("endpoints=", "backends="),
        ("TargetKind.ENDPOINT", "TargetKind.BACKEND"),
    ):
        assert now in old
        old = old.replace(now, then)
    assert parse_case_file(old, "file") == made
