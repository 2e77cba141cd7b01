"""``kproxy conformance cluster``: look at a cluster, judge its service proxy, report, exit code."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kproxy import __version__
from kproxy.conformance import live, xfails
from kproxy.conformance.command import CannotRun, cannot_run, finish, select
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.outputs import CannotWrite
from kproxy.conformance.reports.results import Report
from kproxy.conformance.session import Session, conduct
from kproxy.conformance.subject import BadSubject, Subject, has_mode, load
from kproxy.conformance.testbeds.cluster import guard
from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.connection import Connection, NoCluster, connect
from kproxy.conformance.testbeds.cluster.fleet import NOBODY, Outside
from kproxy.conformance.testbeds.cluster.lacks import narrowed
from kproxy.conformance.testbeds.cluster.pods import LABELS
from kproxy.conformance.testbeds.cluster.survey import Survey, name_of, survey
from kproxy.conformance.testbeds.cluster.testbed import BARRIER, Cluster, opener
from kproxy.conformance.xfails import BadXfails
from kproxy.console import Console
from kproxy.lab.kube.store import KubeStore
from kproxy.lab.namespaces import LabError

_SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """``run``: which cases of whom, and where results go; which cluster; the image of its agents.

    ``client``, ``remote``: URLs of agents outside of the cluster, both or none.  ``really``: although it looks like production.
    """

    run: RunOptions
    image: str
    kubeconfig: str = ""
    context: str = ""
    client: str = ""
    remote: str = ""
    really: bool = False

    @property
    def outside(self) -> Outside:
        """The agents outside, with the key that the environment has.  Raises `CannotRun`."""
        urls = {name: url for name, url in (("client", self.client), ("remote", self.remote)) if url}
        if not urls:
            return NOBODY
        if len(urls) == 1:
            raise CannotRun(
                "--client and --remote go together: an agent outside, and one whose addresses are others"
            )
        if not (key := os.environ.get(KEY)):
            raise CannotRun(f"{KEY} is not set: the key that the agents outside were started with")
        return Outside(urls, key)


def run(options: ClusterOptions) -> int:
    """Judge what serves Services in a cluster; 0 all lawful, 1 a case failed, 2 it cannot be run there."""
    try:
        options.run.outputs.check()
        marks = xfails.read(options.run.xfails)
        subject = load(options.run.proxy, binary="(in the cluster)")
        has_mode(subject, options.run.mode)
        cases = select(options.run.globs, slow=options.run.slow)
        cluster = usable(options)
        session = Session(
            subject=subject,
            mode=options.run.mode,
            cases=[narrowed(case, cluster.shape) for case in cases],
            evidence=options.run.evidence,
            environment=_facts(cluster, subject),
            parallel=1,
            ask_again=True,
            again=shlex.join(_words(options)),
        )
        console = live.console(stderr=options.run.outputs.takes_standard_output)
        return finish(xfails.applied(_conduct(session, cluster, console), marks), options.run, console)
    except (BadSubject, BadXfails, CannotRun, CannotWrite, LabError) as reason:
        return cannot_run(reason)


def _conduct(session: Session, cluster: Cluster, console: Console) -> Report:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with live.live(console) as board:
        return asyncio.run(conduct(session, opener(cluster), partial(board.tell, "")))


def usable(options: ClusterOptions) -> Cluster:
    """The cluster, if it is there, has what cases need, and is nobody's production.  Raises `NoCluster`."""
    outside = options.outside
    connection = connect(options.kubeconfig, options.context)
    store = connection.store()
    found = _survey(store)
    _refuse_leftovers(store)
    if not options.really:
        _refuse_production(connection, store)
    return Cluster(connection, store, found, options.image, options.run.patience or BARRIER, outside)


def _survey(store: KubeStore) -> Survey:
    nodes = store.ask("GET", "/api/v1/nodes")["items"]
    services = store.ask("GET", "/api/v1/services")["items"]
    ranges = store.ask("GET", _SERVICE_CIDRS, tolerated=(404,)).get("items", [])
    return survey(nodes, services, ranges)


def _refuse_leftovers(store: KubeStore) -> None:
    """Two runs would wait for each other's rules; what a killed run has left says so too."""
    selector = ",".join(f"{name}%3D{value}" for name, value in LABELS.items())
    there = store.ask("GET", f"/api/v1/namespaces?labelSelector={selector}")["items"]
    if there:
        names = " ".join(map(name_of, there))
        raise NoCluster(f"another run is there, or was killed: kubectl delete namespace {names}")


def _refuse_production(connection: Connection, store: KubeStore) -> None:
    nodes = len(store.ask("GET", "/api/v1/nodes")["items"])
    namespaces = {str(pod["metadata"]["namespace"]) for pod in store.ask("GET", "/api/v1/pods")["items"]}
    if reasons := guard.objections(connection.context, connection.url, nodes, namespaces):
        raise NoCluster(
            f"this cluster looks like one that people depend on: {'; '.join(reasons)}. "
            "Cases write Services, and agents may administer their nodes' networks: give --really if you mean it"
        )


def _facts(cluster: Cluster, subject: Subject) -> Mapping[str, str]:
    """What a result depends on."""
    nodes = cluster.survey.nodes.values()
    told = [node["status"].get("nodeInfo", {}) for node in nodes]
    return {
        "testbed": "cluster",
        "kproxy": __version__,
        "kernel": ", ".join(sorted({str(one.get("kernelVersion", "unknown")) for one in told})),
        "kubelet": ", ".join(sorted({str(one.get("kubeletVersion", "unknown")) for one in told})),
        "nodes": ", ".join(map(name_of, nodes)),
        "families": ", ".join(family.value for family in cluster.survey.families),
        "apiserver": str(cluster.store.ask("GET", "/version").get("gitVersion", "unknown")),
        "context": cluster.connection.context,
        "subject": f"{subject.name} as it runs there",
    }


def _words(options: ClusterOptions) -> list[str]:
    """The command that asks the same cluster, without the choice of cases."""
    run_ = options.run
    said = ["kproxy", "conformance", "cluster", "--proxy", run_.proxy, "--mode", run_.mode]
    for flag, value in (
        ("--agent-image", options.image),
        ("--kubeconfig", options.kubeconfig),
        ("--context", options.context),
        ("--client", options.client),
        ("--remote", options.remote),
    ):
        said += [flag, value] if value else []
    return [*said, "--really"] if options.really else said
