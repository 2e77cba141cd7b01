"""A backend is one folder and one line: a toy, defined here, is found by its mode, planned for, applied and watched."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kproxy.linux.host import HostError
from kproxy.model.api import Cluster, EndpointSlice, Service
from kproxy.model.network import Family
from kproxy.proxy.backends import BACKENDS, Applied, CommonBackend, Dataplane, ProxyBackend, find_backend
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.flag_table import FLAGS, REMOVED_FLAGS
from kproxy.proxy.daemon.config.flags import parse_flags
from kproxy.proxy.daemon.config.load import InvalidConfiguration
from kproxy.proxy.daemon.config.plan_settings import plan_settings
from kproxy.proxy.daemon.config.resolve import resolve
from kproxy.proxy.daemon.http.metrics import Metrics
from kproxy.proxy.daemon.sync import dataplane
from kproxy.proxy.daemon.sync.dataplane import open_dataplanes
from kproxy.proxy.daemon.sync.family_sync import FamilySync
from kproxy.proxy.daemon.sync.pacing import SyncPeriods
from kproxy.proxy.plan import Plan
from tests.support.objects import endpoint, service, slice_of

FILE = b"""apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: toy
"""


@dataclass
class ToyKernel:
    """Keeps the endpoints of each cluster IP in a dict."""

    table: dict[str, set[str]] = field(default_factory=dict)
    last_applied: dict[str, set[str]] | None = None

    def apply(self, plan: Plan) -> Applied:
        rewritten = self.last_applied is None
        wanted = {
            f"{front.address}:{front.port}": {f"{e.address}:{e.port}" for e in front.pool.endpoints}
            for item in plan.services
            for front in item.frontends
        }
        changed = sum(self.table.get(key) != value for key, value in wanted.items())
        self.table, self.last_applied = dict(wanted), wanted
        return Applied(rewritten, {"entries": changed})

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:  # noqa: ARG002
        return () if self.last_applied is None or self.table == self.last_applied else ("the table",)

    def notifiers(self) -> tuple[int, ...]:
        return ()

    def refresh_options(self) -> bool:
        return False

    def forget(self) -> None:
        self.last_applied = None


class Toy(CommonBackend):
    metrics = frozenset({"sync_full_proxy_rules_duration_seconds"})

    def __init__(self) -> None:
        self.opened: dict[Family, ToyKernel] = {}
        self.removed: list[tuple[Family, str | None]] = []

    def open_dataplane(self, config: Configuration, family: Family) -> Dataplane:
        assert config.mode == "toy"
        self.opened[family] = ToyKernel()
        return self.opened[family]

    def remove_leftovers(self, family: Family, running: str | None) -> tuple[HostError, ...]:
        self.removed.append((family, running))
        return ()


BACKEND: ProxyBackend
"""Set by the fixture: what the registered module has."""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    backend = Toy()
    monkeypatch.setitem(globals(), "BACKEND", backend)
    monkeypatch.setitem(BACKENDS, "toy", __name__)  # the one line
    for mode in ("iptables", "ipvs", "nftables"):
        monkeypatch.setattr(find_backend(mode), "remove_leftovers", lambda *_: ())
    monkeypatch.setattr(dataplane, "ipv6_enabled", lambda: False)
    return backend


class NoConnections:
    def remove(self, _: Plan) -> int:
        return 0

    def forget(self) -> None:
        """There is nothing that it remembers."""


def sync_of(
    plane: Dataplane, store: ClusterStore, config: Configuration, clock: Callable[[], float]
) -> FamilySync:
    def settings(cluster: Cluster) -> object:
        return plan_settings(config, Family.IPV4, "a", None, (), cluster.service_cidrs.values())

    periods = SyncPeriods(min_sync_period=0.0, sync_period=30.0, drift_check_period=0.5)
    return FamilySync(Family.IPV4, store, plane, NoConnections(), settings, periods, clock)  # type: ignore[arg-type]


def test_a_registered_backend_is_chosen_by_its_mode_and_programmed_by_the_daemon(toy: Toy) -> None:
    config = resolve(parse_flags((), FLAGS, REMOVED_FLAGS), FILE).config
    assert find_backend(config.mode) is toy
    now = 1000.0
    store = ClusterStore(lambda: now)
    store.replace(Service, [service(cluster_ips=("10.96.0.1",))], [])
    store.replace(EndpointSlice, [slice_of(endpoint("10.0.0.1"))], [])
    sync = sync_of(open_dataplanes(config, Family.IPV4)[Family.IPV4], store, config, lambda: now)
    sync.wait_for_lists()
    sync.step()
    kernel = toy.opened[Family.IPV4]
    assert kernel.table == {"10.96.0.1:80": {"10.0.0.1:8080"}}
    assert toy.removed == [(Family.IPV4, "toy")], "its own leftovers, once its rules stand"

    store.apply(EndpointSlice, [slice_of(endpoint("10.0.0.2"))])
    now += 0.1
    sync.step()
    assert kernel.table == {"10.96.0.1:80": {"10.0.0.2:8080"}}

    kernel.table.clear()
    for _ in range(4):
        now += 1.0
        sync.step()
    assert kernel.table == {"10.96.0.1:80": {"10.0.0.2:8080"}}, "what another program took is written again"


def test_a_registered_backend_has_the_metrics_that_it_names(toy: Toy) -> None:
    names = {metric.name for metric in Metrics("toy").registry.collect()}
    assert {f"kubeproxy_{name}" for name in toy.metrics} <= names
    assert "kubeproxy_sync_partial_proxy_rules_duration_seconds" not in names


def test_clean_up_removes_what_a_registered_backend_left(toy: Toy) -> None:
    assert dataplane.remove_all_modes() == ()
    assert toy.removed == [(family, None) for family in Family]


def test_a_mode_that_is_not_registered_is_refused_and_the_registered_ones_are_named() -> None:
    with pytest.raises(InvalidConfiguration, match="iptables, ipvs, nftables, userspace"):
        resolve(parse_flags((), FLAGS, REMOVED_FLAGS), FILE)


@pytest.mark.parametrize("mode", BACKENDS)
def test_each_backend_has_the_files_of_the_table(mode: str) -> None:
    """The meaning of each name stands in the docstring of the package."""
    package = BACKENDS[mode].rpartition(".")[0]
    folder = Path(__import__(package, fromlist=["_"]).__file__ or "").parent
    present = {path.stem for path in folder.iterdir()}
    expected = {"backend", "names", "rules", "compile", "static_rules", "desired_state", "diff", "kernel"}
    assert expected <= present
    assert (folder / "kernel" / "applier.py").exists()
