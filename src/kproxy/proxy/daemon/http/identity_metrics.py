"""Metrics that every Kubernetes component has about itself: its build, and its feature gates.

Beside `kproxy.proxy.daemon.http.metrics`: a Prometheus collector over values that do not change while the daemon runs.
Names and labels as kube-proxy 1.36 has them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kproxy import __version__
from kproxy.proxy.daemon.config.feature_gates import FEATURE_GATES, FeatureStage, gate_enabled
from kproxy.proxy.daemon.http.zpages import EMULATED_RELEASE

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of architectures, by Linux'."""


class IdentityCollector(Collector):
    """Prometheus collector of ``kubernetes_build_info`` and ``kubernetes_feature_enabled``."""

    def __init__(self, feature_gates: Mapping[str, bool]) -> None:
        """``feature_gates``: a configuration's ``featureGates``."""
        self._metrics = (_build_info(), _features(feature_gates))

    def collect(self) -> Iterator[Metric]:
        """Both metrics."""
        yield from self._metrics


def _build_info() -> Metric:
    """Build of kproxy: by no compiler of Go, and from no commit that it knows."""
    major, minor = EMULATED_RELEASE.split(".")
    labels = {
        "build_date": "",
        "compiler": platform.python_implementation().lower(),
        "git_commit": "",
        "git_tree_state": "",
        "git_version": f"v{EMULATED_RELEASE}.0+kproxy.{__version__.replace('+', '.')}",
        "go_version": "",
        "major": major,
        "minor": minor,
        "platform": f"linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }
    text = "[BETA] Release of Kubernetes that is followed, and version of kproxy; always 1"
    found = GaugeMetricFamily("kubernetes_build_info", text, labels=list(labels))
    found.add_metric(list(labels.values()), 1)
    return found


def _features(given: Mapping[str, bool]) -> Metric:
    """Every gate of Kubernetes; those of GA have an empty stage, as in kube-proxy."""
    text = "[BETA] 1 for a feature gate that is on"
    found = GaugeMetricFamily("kubernetes_feature_enabled", text, labels=["name", "stage"])
    for name, gate in sorted(FEATURE_GATES.items()):
        stage = "" if gate.stage is FeatureStage.GA else gate.stage.value
        found.add_metric([name, stage], gate_enabled(given, name))
    return found
