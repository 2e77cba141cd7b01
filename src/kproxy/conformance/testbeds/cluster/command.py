"""``kproxy conformance cluster``: survey a cluster, judge its service proxy, report, exit code."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kproxy import __version__
from kproxy.conformance.command import ConformanceRunError, deliver_report, report_error, select_cases
from kproxy.conformance.engine import live_status
from kproxy.conformance.engine.session import Session, run_session
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.outputs import OutputError
from kproxy.conformance.reports.results import Report
from kproxy.conformance.subjects import expected_failures
from kproxy.conformance.subjects.expected_failures import InvalidXfails
from kproxy.conformance.subjects.subject import InvalidSubject, Subject, check_mode, load_subject
from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.cluster import production_guard
from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.connection import ClusterConnection, NoCluster, connect_cluster
from kproxy.conformance.testbeds.cluster.fleet import NO_OUTSIDE_AGENTS, OutsideAgents
from kproxy.conformance.testbeds.cluster.limits import with_cluster_families
from kproxy.conformance.testbeds.cluster.pods import LABELS
from kproxy.conformance.testbeds.cluster.proxy_configuration import ProxyDaemonSet
from kproxy.conformance.testbeds.cluster.survey import ClusterSurvey, object_name, survey_cluster
from kproxy.conformance.testbeds.cluster.testbed import BARRIER, ClusterUnderTest, opener
from kproxy.console import Console
from kproxy.lab.kube.store import KubeStore
from kproxy.lab.namespaces import LabError

_SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options: ``run_in_cluster``: cases, subject and outputs; then the cluster, and the image of its agents.

    ``client``, ``remote``: URLs of agents outside of the cluster, both or none. ``configure``: NAMESPACE/NAME of the proxy's
    DaemonSet and ConfigMap, if its configuration may be changed. ``allow_production``: run although it looks like production.
    """

    run: RunOptions
    image: str
    kubeconfig: str = ""
    context: str = ""
    client: str = ""
    remote: str = ""
    configure: str = ""
    allow_production: bool = False

    @property
    def outside(self) -> OutsideAgents:
        """Agents outside, with the key in the environment. Raises `ConformanceRunError`."""
        urls = {name: url for name, url in (("client", self.client), ("remote", self.remote)) if url}
        if not urls:
            return NO_OUTSIDE_AGENTS
        if len(urls) == 1:
            raise ConformanceRunError(
                "--client and --remote go together: an agent outside, and one whose addresses are others"
            )
        if not (key := os.environ.get(KEY)):
            raise ConformanceRunError(f"{KEY} is not set: the key that the agents outside were started with")
        return OutsideAgents(urls, key)


def run_in_cluster(options: ClusterOptions) -> int:
    """Judge the service proxy of a cluster; 0 all lawful, 1 a case failed, 2 it cannot be run there."""
    try:
        options.run.outputs.check()
        marks = expected_failures.read_xfails(options.run.xfails)
        subject = load_subject(options.run.proxy, binary="(in the cluster)")
        check_mode(subject, options.run.mode)
        cases = select_cases(options.run.globs, options.run.skips, slow=options.run.slow)
        cluster = open_cluster_under_test(options)
        session = Session(
            subject=subject,
            mode=options.run.mode,
            cases=[with_cluster_families(case, cluster.shape) for case in cases],
            evidence=options.run.evidence,
            environment=_facts(cluster, subject),
            parallel_labs=1,
            reprobe=True,
            reproduce_command=shlex.join(_reproduce_arguments(options)),
        )
        console = live_status.make_console(stderr=options.run.outputs.takes_standard_output)
        return deliver_report(
            expected_failures.apply_xfails(_run_all(session, cluster, console), marks), options.run, console
        )
    except (InvalidSubject, InvalidXfails, ConformanceRunError, OutputError, LabError) as reason:
        return report_error(reason)


def _run_all(session: Session, cluster: ClusterUnderTest, console: Console) -> Report:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with live_status.live_status(console) as board:
        return asyncio.run(run_session(session, opener(cluster), partial(board.update, "")))


def open_cluster_under_test(options: ClusterOptions) -> ClusterUnderTest:
    """The cluster, if it exists, has what cases need, and is not production. Raises `NoCluster`."""
    outside = options.outside
    connection = connect_cluster(options.kubeconfig, options.context)
    store = connection.store()
    found = _survey(store)
    _refuse_leftovers(store)
    if not options.allow_production:
        _refuse_production(connection, store)
    proxy = _proxy(options.configure, connection.store()) if options.configure else None
    barrier = options.run.sync_timeout or BARRIER
    return ClusterUnderTest(connection, store, found, options.image, barrier, outside, proxy)


def _proxy(text: str, store: KubeStore) -> ProxyDaemonSet:
    """The proxy whose configuration may be changed.  Raises `ConformanceRunError`."""
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise ConformanceRunError(f"--configure {text}: give NAMESPACE/NAME of the proxy's DaemonSet")
    proxy = ProxyDaemonSet(store, namespace, name)
    try:
        proxy.read()
    except HarnessError as reason:
        raise ConformanceRunError(str(reason)) from reason
    return proxy


def _survey(store: KubeStore) -> ClusterSurvey:
    nodes = store.request("GET", "/api/v1/nodes")["items"]
    services = store.request("GET", "/api/v1/services")["items"]
    ranges = store.request("GET", _SERVICE_CIDRS, tolerated=(404,)).get("items", [])
    return survey_cluster(nodes, services, ranges)


def _refuse_leftovers(store: KubeStore) -> None:
    """Raise `NoCluster` if the namespace of another run exists.

    Two runs at a time would disturb each other, and a killed run leaves its namespace behind.
    """
    selector = ",".join(f"{name}%3D{value}" for name, value in LABELS.items())
    there = store.request("GET", f"/api/v1/namespaces?labelSelector={selector}")["items"]
    if there:
        names = " ".join(map(object_name, there))
        raise NoCluster(f"another run is there, or was killed: kubectl delete namespace {names}")


def _refuse_production(connection: ClusterConnection, store: KubeStore) -> None:
    nodes = len(store.request("GET", "/api/v1/nodes")["items"])
    namespaces = {str(pod["metadata"]["namespace"]) for pod in store.request("GET", "/api/v1/pods")["items"]}
    if reasons := production_guard.production_signs(connection.context, connection.url, nodes, namespaces):
        hint = production_guard.playground_hint(namespaces) if len(reasons) == 1 else ""
        advice = hint or (
            "Cases write Services, and agents may administer their nodes' networks: give --allow-production if you mean it"
        )
        raise NoCluster(f"this cluster looks like one that people depend on: {'; '.join(reasons)}. {advice}")


def _facts(cluster: ClusterUnderTest, subject: Subject) -> Mapping[str, str]:
    """Facts about the cluster that a result depends on."""
    nodes = cluster.survey.nodes.values()
    node_infos = [node["status"].get("nodeInfo", {}) for node in nodes]
    return {
        "testbed": "cluster",
        "kproxy": __version__,
        "kernel": ", ".join(sorted({str(one.get("kernelVersion", "unknown")) for one in node_infos})),
        "kubelet": ", ".join(sorted({str(one.get("kubeletVersion", "unknown")) for one in node_infos})),
        "nodes": ", ".join(map(object_name, nodes)),
        "families": ", ".join(family.value for family in cluster.survey.families),
        "apiserver": str(cluster.store.request("GET", "/version").get("gitVersion", "unknown")),
        "context": cluster.connection.context,
        "subject": f"{subject.name} as it runs there",
    }


def _reproduce_arguments(options: ClusterOptions) -> list[str]:
    """Command line for the same cluster, without the choice of cases."""
    run_ = options.run
    command = ["kproxy", "conformance", "cluster", "--proxy", run_.proxy, "--mode", run_.mode]
    for flag, value in (
        ("--agent-image", options.image),
        ("--kubeconfig", options.kubeconfig),
        ("--context", options.context),
        ("--client", options.client),
        ("--remote", options.remote),
        ("--configure", options.configure),
    ):
        command += [flag, value] if value else []
    return [*command, "--allow-production"] if options.allow_production else command
