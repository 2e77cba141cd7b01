"""The dataplane with a relay beside it: ports of each plan that was applied, and of no other."""

from __future__ import annotations

import socket

import pytest

from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends import Applied
from kproxy.proxy.daemon.http.live_metrics import relay_metrics
from kproxy.proxy.daemon.sync.relaying import RelayingDataplane
from kproxy.proxy.plan import Plan
from kproxy.proxy.relay.relay import LocalRelay
from tests.support.node_port_plans import NODE_PORT, plan


class Rules:
    """A dataplane that only records."""

    def __init__(self) -> None:
        self.refuses = self.forgotten = False

    def apply(self, _: Plan) -> Applied:
        if self.refuses:
            raise HostError("write", "no", Reason.OTHER)
        return Applied(changes={"rules": 1})

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        return ("gone",) if thorough else ()

    def refresh_options(self) -> bool:
        return True

    def forget(self) -> None:
        self.forgotten = True


def test_ports_follow_the_plans_that_were_applied() -> None:
    rules, relay = Rules(), LocalRelay(4)
    plane = RelayingDataplane(rules, relay)
    try:
        assert plane.apply(plan(NODE_PORT)).changes == {"rules": 1}
        socket.create_connection(("127.0.0.1", NODE_PORT.port), timeout=5).close()
        rules.refuses = True
        with pytest.raises(HostError):
            plane.apply(plan())
        socket.create_connection(("127.0.0.1", NODE_PORT.port), timeout=5).close()
        rules.refuses = False
        plane.apply(plan())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", NODE_PORT.port), timeout=5)
    finally:
        relay.start()
        relay.close()


def test_all_else_is_the_modes_own() -> None:
    rules, relay = Rules(), LocalRelay(4)
    plane = RelayingDataplane(rules, relay)
    assert (plane.find_drift(thorough=True), plane.find_drift(thorough=False)) == (("gone",), ())
    assert plane.refresh_options()
    plane.forget()
    assert rules.forgotten
    relay.close()


def test_metrics_are_those_of_a_relay_that_runs() -> None:
    """Metrics ``kproxy_relay_open_connections``, ``kproxy_relay_connections``, ``kproxy_relay_retries``, ``kproxy_relay_limited``."""
    relay = LocalRelay(4)
    relay.counts.retries = 3
    samples = [sample for metric in relay_metrics({Family.IPV6: relay}) for sample in metric.samples]
    found = {sample.name: sample.value for sample in samples}
    assert all(sample.labels == {"ip_family": "IPv6"} for sample in samples)
    assert found == {
        "kproxy_relay_open_connections": 0,
        "kproxy_relay_connections_total": 0,
        "kproxy_relay_retries_total": 3,
        "kproxy_relay_limited_total": 0,
    }
    assert list(relay_metrics({})) == []
    relay.close()
