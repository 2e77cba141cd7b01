"""Fields of a profile in the configuration of a cluster's proxy, and the profiles that it cannot have."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
import yaml

from kproxy.conformance.case import DEFAULT, Case, Profile
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable
from kproxy.conformance.testbeds.cluster.proxy_configuration import (
    ProxyDaemonSet,
    configured,
    is_configurable,
)
from kproxy.lab.kube.store import KubeStore
from kproxy.model.network import Family

FOUND = {
    "mode": "nftables",
    "clusterCIDR": "10.244.0.0/16,fd00:10:244::/48",
    "iptables": {"syncPeriod": "30s"},
    "featureGates": {"Other": True},
}
HAVE = {
    *(
        "default",
        "no-detector",
        "localhost-off",
        "primary-without-external-ips",
        "masquerade-all",
        "node-cidr",
    )
}


class Store:
    """A store of one ConfigMap and one DaemonSet, whose pods are replaced at once."""

    def __init__(self, text: str) -> None:
        self.text, self.generation, self.written = text, 1, list[str]()

    def request(
        self, method: str, path: str, document: Mapping[str, Any] | None = None, *_: object, **__: object
    ) -> Mapping[str, Any]:
        if "configmaps" in path and path.endswith("/proxy"):
            if document is not None:
                self.text = document["data"]["config.conf"]
                self.written.append(self.text)
            return {"data": {"config.conf": self.text}}
        if "daemonsets" in path:
            self.generation += method == "PATCH"
            status = {"observedGeneration": self.generation, "desiredNumberScheduled": 2}
            counts = {"updatedNumberScheduled": 2, "numberAvailable": 2}
            return {"metadata": {"generation": self.generation}, "status": {**status, **counts}}
        return {"code": 404}


def daemon_set(store: Store, name: str = "proxy") -> ProxyDaemonSet:
    return ProxyDaemonSet(cast("KubeStore", store), "kube-system", name)


def test_fields_of_a_profile_are_written_and_others_stay() -> None:
    profile = Profile(name="p", masquerade_all=True, allow_external_ips=False, localhost_node_ports=False)
    document = configured(FOUND, profile)
    assert document["mode"] == "nftables"
    assert document["clusterCIDR"] == FOUND["clusterCIDR"]
    assert document["iptables"] == {
        "syncPeriod": "30s",
        "masqueradeAll": True,
        "masqueradeBit": 14,
        "localhostNodePorts": False,
    }
    assert document["nftables"] == {"masqueradeAll": True, "masqueradeBit": 14}
    assert document["featureGates"] == {"Other": True, "AllowServiceExternalIPs": False}


@pytest.mark.parametrize(
    ("profile", "mode", "ranges"),
    [
        (Profile(name="p", detect_mode=None), "ClusterCIDR", ""),
        (Profile(name="p", detect_families=(Family.IPV4,)), "ClusterCIDR", "10.244.0.0/16"),
        (Profile(name="p", detect_mode="NodeCIDR"), "NodeCIDR", FOUND["clusterCIDR"]),
    ],
)
def test_local_traffic_is_detected_by_the_clusters_own_ranges(
    profile: Profile, mode: str, ranges: str
) -> None:
    document = configured(FOUND, profile)
    assert (document["detectLocalMode"], document["clusterCIDR"]) == (mode, ranges)


def test_profiles_that_a_cluster_can_have() -> None:
    profiles = {case.profile.name: case.profile for case in CATALOGUE}
    assert {name for name, profile in profiles.items() if is_configurable(profile)} == HAVE


def test_a_case_runs_where_its_profile_can_be_had() -> None:
    def first(profile: str) -> Case:
        return next(case for case in CATALOGUE if case.profile.name == profile)

    shape, fixed = ClusterShape(outside=True, configurable=True), ClusterShape(outside=True)
    assert case_not_runnable(first("masquerade-all"), shape) is None
    assert "not ours to change" in str(case_not_runnable(first("masquerade-all"), fixed))
    assert "cannot be configured as in a lab" in str(case_not_runnable(first("large"), shape))


def use(store: Store, profile: Profile, inside: Callable[[], None]) -> None:
    """Have a profile's configuration while ``inside`` runs."""

    async def hold() -> None:
        async with daemon_set(store).having(profile):
            inside()

    asyncio.run(hold())


def test_the_configuration_is_put_back_as_it_was() -> None:
    text = "# mine\n" + yaml.safe_dump(FOUND)
    store, during = Store(text), list[str]()
    use(store, Profile(name="p", masquerade_all=True), lambda: during.append(store.text))
    assert yaml.safe_load(during[0])["nftables"]["masqueradeAll"] is True
    assert store.text == text
    assert store.generation == 3, "pods were replaced twice"


def test_it_is_put_back_after_a_failure() -> None:
    store = Store(yaml.safe_dump(FOUND))

    def fail() -> None:
        raise RuntimeError("a case")

    with pytest.raises(RuntimeError, match="a case"):
        use(store, Profile(name="p", masquerade_all=True), fail)
    assert len(store.written) == 2
    assert yaml.safe_load(store.text) == FOUND


def test_the_default_profile_changes_nothing() -> None:
    store = Store(yaml.safe_dump(FOUND))
    use(store, DEFAULT, lambda: None)
    assert store.written == []


def test_a_config_map_that_is_not_there_is_named() -> None:
    with pytest.raises(HarnessError, match="--configure kube-system/other: there is no ConfigMap"):
        daemon_set(Store(""), "other").read()
