"""The component's build and gates by Kubernetes' names (observed: kube-proxy 1.36 on a node)."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kproxy import __version__
from kproxy.proxy.daemon.config.feature_gates import FEATURE_GATES
from kproxy.proxy.daemon.http.identity_metrics import IdentityCollector


def reported(**gates: bool) -> dict[str, list[Sample]]:
    """As a scraper reads it."""
    registry = CollectorRegistry()
    registry.register(IdentityCollector(gates))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {family.name: family.samples for family in families}


def test_the_build_is_that_of_kproxy_and_the_release_the_one_it_follows() -> None:
    (build,) = reported()["kubernetes_build_info"]
    assert build.value == 1
    assert set(build.labels) == {
        "build_date",
        "compiler",
        "git_commit",
        "git_tree_state",
        "git_version",
        "go_version",
        "major",
        "minor",
        "platform",
    }
    assert (build.labels["major"], build.labels["minor"]) == ("1", "36")
    assert build.labels["git_version"] == f"v1.36.0+kproxy.{__version__.replace('+', '.')}"
    assert build.labels["platform"].startswith("linux/")


def test_every_gate_is_reported_with_its_stage_and_state() -> None:
    found = {
        (sample.labels["name"], sample.labels["stage"]): sample.value
        for sample in reported(ComponentStatusz=False)["kubernetes_feature_enabled"]
    }
    assert len(found) == len(FEATURE_GATES)
    assert found["NFTablesProxyMode", ""] == 1
    assert found["AllAlpha", "ALPHA"] == 0
    assert found["ComponentFlagz", "BETA"] == 1
    assert found["ComponentStatusz", "BETA"] == 0
    assert found["GitRepoVolumeDriver", "DEPRECATED"] == 0
