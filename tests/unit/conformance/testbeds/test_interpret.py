"""What the lab saw, read as outcomes: every branch, and what may never pass for silence."""

import errno
from dataclasses import replace
from ipaddress import ip_address

import pytest

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.case import (
    Apply,
    EndpointCountLocation,
    Probe,
    Target,
    Vantage,
    case,
    client,
    delivered_to,
    endpoint_target,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.testbed import HarnessError, Observation, expected_health
from kproxy.conformance.testbeds.interpret import (
    ELSEWHERE,
    HOST,
    interpret_health,
    interpret_status,
    interpret_step,
)
from kproxy.lab.probes import http
from kproxy.lab.probes import observation as lab
from kproxy.lab.probes.observation import Socket
from kproxy.lab.topology import LAB
from kproxy.model.network import Address, Family
from kproxy.spec.outcome import Delivered, Failure, SourceIP

WEB = service("web", "a1", "b1")
INSTANCES = bind_cases([case("group.name", "It reads.", Apply(WEB), clauses=set())])
FAMILIES = pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: instance.family.value)
V4 = INSTANCES[0]
AT_B = service("web", "b1").node_port("b")


def requested(sender: Vantage | None = None, to: Target | None = None) -> Probe:
    """A pod sends to a cluster IP, by default."""
    return Probe(sender=sender or pod("a2"), to=to or WEB.cluster_ip, expect=delivered_to("a1"))


def endpoint(instance: Instance) -> lab.Socket:
    return lab.Socket(LAB.pod_address["b1"][instance.family], 10000)


def answered(instance: Instance, own: Address, peer: Address, who: str = "b1") -> lab.Answered:
    return lab.Answered(
        who=who, at=endpoint(instance), peer=lab.Socket(peer, 4000), own=lab.Socket(own, 4000)
    )


def delivered(instance: Instance, *sources: SourceIP) -> frozenset[object]:
    at = endpoint(instance)
    return frozenset(Delivered(at.address, at.port, source) for source in sources)


def sighting(direction: lab.Direction, interface: str, namespace: str = "a") -> lab.Sighting:
    address = LAB.pod_address["a2"][Family.IPV4]
    return lab.Sighting(namespace, interface, direction, lab.Socket(address, 4000), endpoint(V4))


CAME_IN = sighting(lab.Direction.IN, "veth-a2")
WENT_OUT = sighting(lab.Direction.OUT, "eth0")


def silence(*sightings: lab.Sighting, lost: int = 0) -> lab.Silent:
    return lab.Silent(evidence=lab.Evidence(sightings, lost=lost))


# ------------------------------------------------------------------------------ answers


@FAMILIES
def test_an_endpoint_that_sees_the_sender_has_the_source_preserved(instance: Instance) -> None:
    own = LAB.pod_address["a2"][instance.family]
    seen = interpret_step(answered(instance, own, own), instance, requested())
    assert seen.outcomes == delivered(instance, SourceIP.PRESERVED)
    assert seen.endpoint == (endpoint(instance).address, 10000)


@FAMILIES
def test_an_endpoint_that_sees_any_address_of_the_judging_node_has_it_masqueraded(instance: Instance) -> None:
    own = LAB.client_address["a"][instance.family]
    for peer in LAB.local_addresses("a", instance.family):
        seen = interpret_step(answered(instance, own, peer), instance, requested(client("a")))
        assert seen.outcomes == delivered(instance, SourceIP.MASQUERADED)


@FAMILIES
def test_what_a_node_sends_from_its_own_address_may_be_either(instance: Instance) -> None:
    own = LAB.node_address["a"][instance.family]
    seen = interpret_step(answered(instance, own, own), instance, requested(host("a")))
    assert seen.outcomes == delivered(instance, SourceIP.PRESERVED, SourceIP.MASQUERADED)


@FAMILIES
def test_an_endpoint_that_sees_a_stranger_is_never_lawful(instance: Instance) -> None:
    own = LAB.client_address["a"][instance.family]
    strangers = LAB.node_address["b"], LAB.pod_address["a1"]
    for stranger in strangers:
        seen = interpret_step(
            answered(instance, own, stranger[instance.family]), instance, requested(client("a"))
        )
        assert seen.outcomes == frozenset()
        assert seen.endpoint is not None


def test_the_node_that_judges_a_node_port_is_the_one_queried() -> None:
    own, peer = LAB.node_address["a"][Family.IPV4], LAB.node_address["b"][Family.IPV4]
    assert interpret_step(answered(V4, own, peer), V4, requested(host("a"), AT_B)).outcomes == delivered(
        V4, SourceIP.MASQUERADED
    )


def test_what_another_node_sends_from_its_own_address_is_preserved_alone() -> None:
    own = LAB.node_address["a"][Family.IPV4]
    seen = interpret_step(answered(V4, own, own), V4, requested(host("a"), AT_B))
    assert seen.outcomes == delivered(V4, SourceIP.PRESERVED)


@pytest.mark.parametrize("who", [ELSEWHERE, HOST + "a", HOST + "b"])
def test_a_bystander_that_answers_shows_that_the_proxy_did_not_act(who: str) -> None:
    own = LAB.pod_address["a2"][Family.IPV4]
    seen = interpret_step(answered(V4, own, own, who), V4, requested())
    assert seen.outcomes == {Failure.UNTOUCHED}
    assert seen.endpoint is None
    assert who in seen.text


def test_a_pod_queried_by_its_own_address_is_untouched_unless_its_source_is_rewritten() -> None:
    own = LAB.pod_address["a2"][Family.IPV4]
    direct = requested(to=endpoint_target(WEB, "b1"))
    assert interpret_step(answered(V4, own, own), V4, direct).outcomes == {Failure.UNTOUCHED}
    rewritten = answered(V4, own, LAB.node_address["a"][Family.IPV4])
    assert interpret_step(rewritten, V4, direct).outcomes == delivered(V4, SourceIP.MASQUERADED)


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("family", "type", "code", "rejected"),
    [
        (Family.IPV4, 3, 3, True),  # RFC 792: port unreachable
        (Family.IPV4, 3, 1, False),
        (Family.IPV4, 3, 13, False),
        (Family.IPV4, 1, 4, False),
        (Family.IPV6, 1, 4, True),  # RFC 4443: port unreachable
        (Family.IPV6, 1, 1, False),
        (Family.IPV6, 3, 3, False),
    ],
)
def test_only_port_unreachable_is_a_rejection(family: Family, type: int, code: int, rejected: bool) -> None:  # noqa: FBT001
    packet = V4.bound_packet(requested().sender, requested().to).packet
    about = Socket(packet.destination, packet.port)
    refused = lab.Refused(lab.Icmp(family, type, code), ip_address("172.18.0.2"), about)
    seen = interpret_step(refused, V4, requested())
    assert seen.outcomes == ({Failure.REJECTED} if rejected else set())
    assert f"type {type} code {code} from 172.18.0.2" in seen.text


@FAMILIES
def test_an_icmp_error_quotes_the_address_of_the_family_that_was_queried(instance: Instance) -> None:
    probe = requested(to=WEB.cluster_ip.in_other_family())
    packet = instance.bound_packet(probe.sender, probe.to).packet
    error = (3, 3) if packet.family is Family.IPV4 else (1, 4)
    refused = lab.Refused(
        lab.Icmp(packet.family, *error), ip_address("172.18.0.2"), lab.Socket(packet.destination, packet.port)
    )
    assert packet.family is not instance.family
    assert interpret_step(refused, instance, probe).outcomes == {Failure.REJECTED}


def test_a_refusal_about_an_address_that_was_not_queried_is_never_lawful() -> None:
    endpoint = Socket(ip_address("10.244.1.11"), 10000)
    refused = lab.Refused(lab.Icmp(Family.IPV4, 3, 3), ip_address("172.18.0.2"), endpoint)
    seen = interpret_step(refused, V4, requested())
    assert seen.outcomes == set()
    assert "10.244.1.11:10000, which was not probed" in seen.text


@pytest.mark.parametrize("connected", [False, True])
def test_a_reset_is_a_reset_and_never_a_rejection(connected: bool) -> None:  # noqa: FBT001
    seen = interpret_step(lab.Reset(connected), V4, requested())
    assert seen.outcomes == {Failure.RESET}
    assert ("after the handshake" in seen.text) == connected


@pytest.mark.parametrize(
    ("strange", "output_text"),
    [
        (lab.NetworkError(errno.ENETUNREACH), "ENETUNREACH"),
        (lab.NetworkError(9999), "9999"),
        (lab.Garbled("half an answer"), "half an answer"),
    ],
)
def test_what_no_proxy_should_cause_is_never_lawful(strange: lab.Observation, output_text: str) -> None:
    seen = interpret_step(strange, V4, requested())
    assert seen.outcomes == frozenset()
    assert output_text in seen.text


def test_what_the_kernel_cannot_send_is_no_failure_of_the_subject() -> None:
    with pytest.raises(HarnessError, match="no SCTP"):
        interpret_step(lab.Unsupported("no SCTP"), V4, requested())


# ------------------------------------------------------------------------------ silence


def is_dropped(seen: Observation) -> bool:
    return seen.outcomes == {Failure.DROPPED}


def test_silence_after_the_packet_reached_the_node_and_did_not_leave_it_is_a_drop() -> None:
    assert is_dropped(interpret_step(silence(CAME_IN), V4, requested()))


def test_silence_of_a_packet_that_left_the_node_is_not() -> None:
    seen = interpret_step(silence(CAME_IN, WENT_OUT), V4, requested())
    assert seen.outcomes == frozenset()
    assert "left node a by eth0" in seen.text
    assert "its own address" not in seen.text
    node = LAB.node_address["a"][Family.IPV4]
    seen = interpret_step(
        silence(CAME_IN, replace(WENT_OUT, destination=lab.Socket(node, 10000))), V4, requested()
    )
    assert seen.text.endswith("10000, its own address")


def test_what_passes_another_node_or_loopback_did_not_leave_the_judging_one() -> None:
    on_b = sighting(lab.Direction.OUT, "eth0", namespace="b")
    on_loopback = sighting(lab.Direction.OUT, "lo")
    assert is_dropped(interpret_step(silence(CAME_IN, on_b, on_loopback), V4, requested()))


def test_silence_where_an_endpoint_got_the_request_is_a_lost_answer() -> None:
    got = lab.Reception("b1", endpoint(V4), endpoint(V4))
    seen = interpret_step(lab.Silent(evidence=lab.Evidence((CAME_IN,), (got,))), V4, requested())
    assert seen.outcomes == frozenset()
    assert "b1 got it" in seen.text


def test_silence_after_a_handshake_is_a_lost_answer() -> None:
    assert interpret_step(lab.Silent(connected=True), V4, requested()).outcomes == frozenset()


@pytest.mark.parametrize("sender", [pod("a2"), client("a"), remote("a")], ids=str)
def test_silence_of_a_packet_that_never_reached_the_node_proves_nothing(sender: Vantage) -> None:
    with pytest.raises(HarnessError, match="never reached node a"):
        interpret_step(silence(), V4, requested(sender))


def test_silence_of_a_packet_that_another_node_does_not_pass_on_is_that_nodes_failure() -> None:
    into_b = sighting(lab.Direction.IN, "eth0", namespace="b")
    seen = interpret_step(silence(into_b), V4, requested())
    assert seen.outcomes == frozenset()
    assert "node b did not pass it on" in seen.text


def test_what_another_node_passed_on_and_got_lost_proves_nothing() -> None:
    through_b = [sighting(way, "eth0", namespace="b") for way in (lab.Direction.IN, lab.Direction.OUT)]
    with pytest.raises(HarnessError, match="never reached node a"):
        interpret_step(silence(*through_b), V4, requested())


def test_silence_proves_nothing_when_captures_have_lost_packets() -> None:
    with pytest.raises(HarnessError, match="lost 2 packets"):
        interpret_step(silence(CAME_IN, lost=2), V4, requested())


def test_a_packet_seen_to_leave_is_seen_even_when_captures_have_lost_others() -> None:
    assert interpret_step(silence(CAME_IN, WENT_OUT, lost=2), V4, requested()).outcomes == frozenset()


@pytest.mark.parametrize("stopped", [False, True])
def test_what_a_node_drops_of_its_own_never_comes_to_a_link(stopped: bool) -> None:  # noqa: FBT001
    own = replace(silence(), stopped_at_sender=stopped)
    assert is_dropped(interpret_step(own, V4, requested(host("a"))))


@pytest.mark.parametrize("stopped", [False, True])
def test_silence_of_a_packet_that_another_node_lets_not_out_is_that_nodes_failure(stopped: bool) -> None:  # noqa: FBT001
    own = replace(silence(), stopped_at_sender=stopped)
    seen = interpret_step(own, V4, requested(host("a"), AT_B))
    assert seen.outcomes == frozenset()
    assert "node a, which sends it, let nothing out" in seen.text


def test_what_another_node_sent_and_got_lost_proves_nothing() -> None:
    with pytest.raises(HarnessError, match="never reached node b"):
        interpret_step(silence(WENT_OUT), V4, requested(host("a"), AT_B))


def test_what_another_node_sent_and_the_node_queried_took_is_a_drop() -> None:
    into_b = sighting(lab.Direction.IN, "eth0", namespace="b")
    assert is_dropped(interpret_step(silence(WENT_OUT, into_b), V4, requested(host("a"), AT_B)))


WEIGHED = {"x-load-balancing-endpoint-weight": "2"}
TWO = b'{"localEndpoints": 2}'


@pytest.mark.parametrize("reported", EndpointCountLocation)
def test_a_health_check_is_what_a_case_expects_or_is_not(reported: EndpointCountLocation) -> None:
    assert interpret_health(http.Response(200, TWO, WEIGHED), reported) == expected_health(2, reported)
    assert interpret_health(http.Response(503, b'{"localEndpoints": 0}', {}), reported) != expected_health(
        2, reported
    )
    assert (
        interpret_health(None, reported)
        == expected_health(None, reported)
        != interpret_health(lab.Silent(), reported)
    )


@pytest.mark.parametrize(
    ("reported", "body", "headers", "lawful"),
    [
        (EndpointCountLocation.BY_STATUS, b"ok", {}, True),
        (EndpointCountLocation.IN_BODY, b"ok", WEIGHED, False),
        (EndpointCountLocation.IN_BODY, b'{"localEndpoints": 3}', WEIGHED, False),
        (EndpointCountLocation.IN_BODY, b"{}", {}, False),
        (EndpointCountLocation.IN_BODY, TWO, {}, True),
        (EndpointCountLocation.IN_HEADER, TWO, {}, False),
        (EndpointCountLocation.IN_HEADER, TWO, {"x-load-balancing-endpoint-weight": "3"}, False),
        (EndpointCountLocation.IN_HEADER, b"ok", WEIGHED, True),
    ],
)
def test_the_number_of_a_health_check_counts_where_it_is_requested(
    reported: EndpointCountLocation, body: bytes, headers: dict[str, str], *, lawful: bool
) -> None:
    seen = interpret_health(http.Response(200, body, headers), reported)
    assert (seen == expected_health(2, reported)) is lawful


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (http.Response(503, b"", {}), "status 503"),
        (None, "refused, or not HTTP"),
        (lab.Silent(), "no answer"),
    ],
)
def test_a_proxy_is_healthy_by_its_status_alone(seen: http.Response | lab.Silent | None, text: str) -> None:
    assert interpret_status(seen) == text
