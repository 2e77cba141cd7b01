"""Turns of endpoints: round robin, affinity and its end."""

from __future__ import annotations

from kproxy.model.network import Protocol
from kproxy.proxy.relay import choice
from kproxy.proxy.relay.choice import EndpointTurns, attempts, dial_seconds
from kproxy.proxy.relay.table import RelayPort

A, B, C = ("10.0.0.1", 80), ("10.0.0.2", 80), ("10.0.0.3", 80)


def port(*endpoints: tuple[str, int], affinity: int | None = None) -> RelayPort:
    return RelayPort(
        service="default/web:http",
        protocol=Protocol.TCP,
        address="127.0.0.1",
        port=30000,
        endpoints=endpoints,
        affinity_seconds=affinity,
    )


def test_endpoints_take_turns() -> None:
    turns = EndpointTurns(port(A, B, C))
    assert [turns.choose("x", 0.0) for _ in range(4)] == [A, B, C, A]


def test_a_client_keeps_its_endpoint_until_its_time_runs_out_and_others_do_not() -> None:
    turns = EndpointTurns(port(A, B, affinity=10))
    assert [turns.choose("x", now) for now in (0.0, 9.0, 18.0)] == [A, A, A]
    assert turns.choose("y", 18.0) == B
    assert turns.choose("z", 18.0) == A
    assert turns.choose("x", 28.0) == B


def test_a_client_whose_endpoint_failed_or_left_goes_to_the_next_and_stays_there() -> None:
    turns = EndpointTurns(port(A, B, affinity=10))
    assert turns.choose("x", 0.0) == A
    turns.failed("x", B)  # not its own
    assert turns.choose("x", 1.0) == A
    turns.failed("x", A)
    assert [turns.choose("x", now) for now in (2.0, 3.0)] == [B, B]
    turns.port = port(C, affinity=10)
    assert turns.choose("x", 4.0) == C


def test_the_client_that_came_first_is_forgotten_first() -> None:
    turns = EndpointTurns(port(A, B, affinity=10))
    for number in range(choice.MAX_CLIENTS + 1):
        turns.choose(str(number), 0.0)
    assert turns.choose("1", 1.0) == B
    assert turns.choose("0", 1.0) == B  # its turn again: the last was A


def test_attempts_take_longer_and_each_endpoint_gets_one() -> None:
    assert [dial_seconds(number) for number in range(6)] == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert (attempts(1), attempts(9)) == (4, 9)


def test_a_connection_tries_each_endpoint_whatever_turns_others_take_meanwhile() -> None:
    turns = EndpointTurns(port(A, B))
    assert turns.choose("x", 0.0) == A
    assert turns.choose("y", 0.0) == B
    assert turns.choose("x", 0.0, failed=(A,)) == B
    assert turns.choose("x", 0.0, failed=(A, B)) in {A, B}
    sticky = EndpointTurns(port(A, B, affinity=10))
    assert [sticky.choose("x", 0.0, failed=tried) for tried in ((), (A,), ())] == [A, B, B]
