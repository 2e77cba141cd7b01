"""Metrics that are read from the store and the syncs at each request."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kproxy.linux.host import HostError, Reason
from kproxy.model.api import Cluster, EndpointPort, EndpointSlice, Rejected, Service, ServicePort
from kproxy.model.network import Family
from kproxy.proxy.backends import AffinityUse, Applied
from kproxy.proxy.daemon.cluster.store import ClusterStore, Removed
from kproxy.proxy.daemon.http.live_metrics import StateCollector, affinity_metrics, without_local_endpoints
from kproxy.proxy.daemon.sync.family_sync import FamilySync
from kproxy.proxy.daemon.sync.pacing import SyncPeriods
from kproxy.proxy.plan import Plan, PlanSettings, make_plan
from kproxy.proxy.snapshot import normalise
from tests.support.objects import cluster, endpoint, service, slice_of

LOCAL_BOTH: dict[str, Any] = {
    "type": "NodePort",
    "external_traffic_policy": "Local",
    "internal_traffic_policy": "Local",
}


class Kernel:
    """Applies whatever it is given, unless it is broken."""

    def __init__(self) -> None:
        self.broken = False
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while it writes."""

    def apply(self, plan: Plan) -> Applied:
        self.meanwhile()
        if self.broken:
            raise HostError("apply", str(plan.family), Reason.OTHER)
        return Applied()

    def notifiers(self) -> tuple[int, ...]:
        return ()

    def refresh_options(self) -> bool:
        return False

    def find_drift(self, **_: bool) -> tuple[str, ...]:
        return ()

    def forget(self) -> None:
        pass

    def remove(self, _: Plan) -> int:
        return 0


class Daemon:
    """Two families over one store; nothing happens but by `sync`."""

    def __init__(self, mode: str = "iptables") -> None:
        self.now = 1000.0
        self.store = ClusterStore(lambda: self.now)
        self.kernel = Kernel()
        self.syncs = [self._sync(family) for family in Family]
        self.registry = CollectorRegistry()
        self.registry.register(StateCollector(mode, self.store, self.syncs, lambda: self.now))

    def _sync(self, family: Family) -> FamilySync:
        def settings(_: Cluster) -> PlanSettings:
            return PlanSettings(family=family, node="a")

        pace = SyncPeriods(min_sync_period=0.0, sync_period=30.0)
        return FamilySync(family, self.store, self.kernel, self.kernel, settings, pace, lambda: self.now)

    def sync(self) -> None:
        for one in self.syncs:
            one._sync()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def changes(self, kind: str) -> tuple[float | None, float | None]:
        """Those that wait, and all there were."""
        base = f"kubeproxy_sync_proxy_rules_{kind}_changes"
        return self.value(f"{base}_pending"), self.value(f"{base}_total")


def test_changes_wait_until_a_sync_takes_them_and_are_counted_for_ever() -> None:
    daemon = Daemon()
    assert daemon.changes("service") == (0, 0)
    daemon.store.apply(Service, [service("a"), service("b")])
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1"))])
    assert daemon.changes("service") == (2, 4)  # each family sees a Service
    assert daemon.changes("endpoint") == (1, 1)  # and its own slices only
    daemon.sync()
    assert daemon.changes("service") == (0, 4)
    assert daemon.changes("endpoint") == (0, 1)


def test_a_slice_waits_for_the_family_it_is_of_and_for_no_other() -> None:
    daemon = Daemon()
    daemon.sync()
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1"))])
    assert daemon.changes("endpoint") == (1, 1)
    for one in daemon.syncs:
        if one.family is Family.IPV4:
            one._sync()
    assert daemon.changes("endpoint") == (0, 1)


def test_a_change_that_makes_no_difference_is_seen_but_does_not_wait() -> None:
    daemon = Daemon()
    daemon.store.apply(Service, [service("a")])
    daemon.sync()
    daemon.store.apply(Service, [service("a")])
    assert daemon.changes("service") == (0, 4)


def test_what_comes_and_goes_between_two_syncs_does_not_wait() -> None:
    daemon = Daemon()
    daemon.store.apply(Service, [service("a")])
    daemon.store.apply(Service, [Removed(("test", "a"))])
    assert daemon.changes("service") == (0, 4)


def test_a_sync_that_is_wanted_is_dated_by_the_last_change() -> None:
    daemon = Daemon()
    name = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
    daemon.now += 100
    assert daemon.value(name, ip_family="IPv4") == pytest.approx(time.time() - 100, abs=5)
    daemon.store.apply(Service, [service("a")])
    assert daemon.value(name, ip_family="IPv4") == pytest.approx(time.time(), abs=5)


def made(*objects: Service | EndpointSlice) -> dict[str, int]:
    snapshot = normalise(cluster(*objects), Family.IPV4)
    blamed = without_local_endpoints(make_plan(snapshot, PlanSettings(family=Family.IPV4, node="a")))
    return {policy: len(ports) for policy, ports in blamed.items()}


def test_a_port_whose_endpoints_are_all_elsewhere_counts_for_each_policy_that_is_local() -> None:
    elsewhere = slice_of(endpoint("10.0.0.1", "b"))
    assert made(service(**LOCAL_BOTH), elsewhere) == {"internal": 1, "external": 0}
    reachable = service(external_ips=["192.0.2.9"], **LOCAL_BOTH)
    assert made(reachable, elsewhere) == {"internal": 1, "external": 1}
    only_external = service(external_ips=["192.0.2.9"], external_traffic_policy="Local", type="NodePort")
    assert made(only_external, elsewhere) == {"internal": 0, "external": 1}


def test_a_port_with_an_endpoint_here_or_none_anywhere_or_policy_cluster_does_not_count() -> None:
    reachable = service(external_ips=["192.0.2.9"], **LOCAL_BOTH)
    nothing = {"internal": 0, "external": 0}
    assert made(reachable, slice_of(endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"))) == nothing
    assert made(reachable) == nothing
    assert made(service(external_ips=["192.0.2.9"]), slice_of(endpoint("10.0.0.1", "b"))) == nothing


def test_the_gauge_follows_what_is_in_the_kernel() -> None:
    daemon = Daemon()
    name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
    labels = {"traffic_policy": "internal", "ip_family": "IPv4"}
    assert daemon.value(name, **labels) is None
    daemon.store.apply(Service, [service(**LOCAL_BOTH)])
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1", "b"))])
    daemon.sync()
    assert daemon.value(name, **labels) == 1
    assert daemon.value(name, traffic_policy="internal", ip_family="IPv6") == 0
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1", "a"))])
    daemon.sync()
    assert daemon.value(name, **labels) == 0


def test_the_gauge_keeps_its_value_while_the_next_sync_writes_and_after_one_that_failed() -> None:
    daemon, seen = Daemon(), list[float | None]()
    labels = {"traffic_policy": "internal", "ip_family": "IPv4"}

    def scrape() -> None:
        seen.append(daemon.value("kubeproxy_sync_proxy_rules_no_local_endpoints_total", **labels))

    daemon.store.apply(Service, [service(**LOCAL_BOTH)])
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1", "b"))])
    daemon.sync()
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1", "a"))])
    daemon.kernel.meanwhile, daemon.kernel.broken = scrape, True
    daemon.sync()
    scrape()
    assert seen == [1, 1]


@pytest.mark.parametrize(("mode", "count"), [("iptables", 2), ("nftables", 2), ("ipvs", 1)])
def test_ipvs_counts_services_and_the_others_their_ports(mode: str, count: int) -> None:
    daemon = Daemon(mode)
    ports = [ServicePort("http", port=80), ServicePort("admin", port=81)]
    targets = [EndpointPort("http", port=8080), EndpointPort("admin", port=8081)]
    daemon.store.apply(Service, [service(ports=ports, **LOCAL_BOTH)])
    daemon.store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.1", "b"), ports=targets)])
    daemon.sync()
    name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
    assert daemon.value(name, traffic_policy="internal", ip_family="IPv4") == count


def test_an_object_that_cannot_be_read_is_named_until_it_can() -> None:
    daemon = Daemon()
    who = {"kind": "Service", "namespace": 'n"s', "name": "a\nb"}

    def named() -> float | None:
        return daemon.registry.get_sample_value("kproxy_refused_object", who)

    assert named() is None
    daemon.store.apply(Service, [Rejected("Service", ('n"s', "a\nb"), "no number")])
    assert named() == 1
    daemon.store.apply(Service, [service("a\nb", namespace='n"s')])
    assert named() is None


def test_an_object_of_which_a_part_is_refused_is_named_until_it_is_not() -> None:
    daemon = Daemon()
    where = {"kind": "Service", "namespace": "test", "name": "a"}
    good, bad = ServicePort(name="http", port=80), ServicePort(name="dns", port=70000)
    for ports, reported in (((good,), None), ((good, bad), 1), ((good,), None)):
        daemon.store.apply(Service, [service("a", ports=ports)])
        daemon.sync()
        assert daemon.registry.get_sample_value("kproxy_refused_object", where) == reported


def test_clients_under_affinity_are_reported_beside_the_most_there_may_be() -> None:
    """Metrics ``kproxy_affinity_clients``, ``kproxy_affinity_clients_limit``."""
    found = affinity_metrics({Family.IPV6: AffinityUse(clients=7, limit=10)})
    samples = [sample for metric in found for sample in metric.samples]
    assert all(sample.labels == {"ip_family": "IPv6"} for sample in samples)
    assert {sample.name: sample.value for sample in samples} == {
        "kproxy_affinity_clients": 7,
        "kproxy_affinity_clients_limit": 10,
    }
    assert list(affinity_metrics({})) == []
