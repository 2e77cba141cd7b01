"""``kproxy lab cluster``: a cluster that runs until Ctrl-C or ``down``, and commands that enter it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from kproxy.documents import TEXT, print_document
from kproxy.lab.cluster import session
from kproxy.lab.cluster.cluster import ClusterSpec, LabCluster
from kproxy.lab.cluster.layout import OUTSIDE, ClusterLayout
from kproxy.lab.cluster.node_programs import MakePrograms, NodeProxies
from kproxy.lab.cluster.programs import find_programs
from kproxy.lab.cluster.service_proxy import (
    DEFAULT_MODE,
    ProxyName,
    proxy_documents,
    write_kube_proxy_image,
)
from kproxy.lab.namespaces import LabError
from kproxy.lab.topology import SWITCH
from kproxy.model.network import Family

CANNOT = 2
DEPLOY = Path(__file__).parents[4] / "deploy"
"""Manifests of kproxy in a clone; an installed package has none."""
ROLLOUT_SECONDS = 300
_WATCH_SECONDS = 1.0
_IMAGES = "images"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUpOptions:
    """Options of ``up``; ``assets``: a folder with Kubernetes' programs and, in ``images``, archives of images.

    ``programs``: the proxy's programs on each node, if it is none of `ProxyName`.  ``mode``: empty for the usual one.
    """

    nodes: int
    assets: Path | None
    proxy: str
    mode: str
    deploy: Path
    name: str
    form: str = TEXT
    programs: MakePrograms | None = None

    @property
    def daemon_set(self) -> ProxyName:
        """The proxy that is installed as a DaemonSet.  Raises `LabError`."""
        if self.programs is not None:
            return ProxyName.NONE
        return ProxyName(self.proxy)


def run_up(options: ClusterUpOptions) -> int:
    """Start a cluster and keep it; 0 when it was stopped, 2 when it could not be."""
    try:
        asyncio.run(_stay(options))
    except LabError as reason:
        return cannot("up", reason)
    return 0


def run_in_place(name: str, where: str, argv: Sequence[str]) -> int:
    """Run a program in a place of a cluster; returns its exit status. When the cluster ends, so does the program."""
    return _run("exec", name, lambda found: found.command(where, argv))


def run_as_administrator(name: str, arguments: Sequence[str]) -> int:
    """Run kubectl as the cluster's administrator; returns its exit status."""
    return _run("kubectl", name, lambda found: found.kubectl_command(arguments))


def print_kubeconfig(name: str, form: str = TEXT) -> int:
    """Print the path of a cluster's kubeconfig, which is valid on this machine."""
    try:
        path = str(session.find_session(name).kubeconfig)
    except LabError as reason:
        return cannot("kubeconfig", reason)
    if form == TEXT:
        sys.stdout.write(f"{path}\n")
    else:
        print_document({"schema": "kproxy-lab-cluster/1", "name": name, "kubeconfig": path}, form)
    return 0


def run_down(name: str) -> int:
    """End a cluster, and wait until it is gone."""
    try:
        session.stop_session(name)
    except LabError as reason:
        return cannot("down", reason)
    return 0


async def _stay(options: ClusterUpOptions) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    for leftover in session.remove_abandoned():
        _report(f"removed what a killed session had left: {leftover}")
    stopping = asyncio.create_task(ended.wait())
    async with AsyncExitStack() as stack:
        opening = asyncio.create_task(_open(options, stack))
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
            return
        cluster = opening.result()
        stack.callback(_report, "ending")
        while not ended.is_set():
            cluster.check()
            await asyncio.wait({stopping}, timeout=_WATCH_SECONDS)


async def _open(options: ClusterUpOptions, stack: AsyncExitStack) -> LabCluster:
    """A cluster with its proxy, which ``stack`` closes."""
    began = time.monotonic()

    def progress(step: str) -> None:
        _report(f"{time.monotonic() - began:5.1f} s  {step}")

    spec = cluster_spec(options)
    documents = proxy_documents(options.daemon_set, options.mode, spec.programs.kubectl, options.deploy)
    cluster = await stack.enter_async_context(LabCluster(spec, progress))
    if documents:
        progress(f"{options.proxy} in {options.mode or DEFAULT_MODE} mode")
        await asyncio.to_thread(install_proxy, cluster, options.proxy, documents)
    if options.programs:
        progress(f"{options.proxy} on each node")
        proxies = NodeProxies(cluster, options.programs, progress)
        stack.push_async_callback(proxies.close)
        await proxies.start()
    session.publish(options.name, cluster, (SWITCH, *OUTSIDE))
    progress(f"ready: {len(cluster.nodes)} nodes; export KUBECONFIG={cluster.kubeconfig}")
    if options.form != TEXT:
        print_document(cluster_document(options, cluster), options.form)
    return cluster


def cluster_document(options: ClusterUpOptions, cluster: LabCluster) -> dict[str, object]:
    """A running cluster as data."""
    layout = cluster.spec.layout
    return {
        "schema": "kproxy-lab-cluster/1",
        "name": options.name,
        "kubeconfig": str(cluster.kubeconfig),
        "proxy": options.proxy,
        "mode": options.mode,
        "nodes": {
            node: [str(layout.node_address(node, family)) for family in Family] for node in cluster.nodes
        },
    }


def cluster_spec(options: ClusterUpOptions) -> ClusterSpec:
    """Programs, layout and images by these options.  Raises `LabError` when something is missing."""
    try:
        layout = ClusterLayout(options.nodes)
    except ValueError as reason:
        raise LabError(str(reason)) from None
    programs = find_programs(options.assets)
    folder = programs.kubelet.parent
    proxy = options.daemon_set
    if proxy is not ProxyName.NONE:
        _require_image(proxy, folder)
    images = sorted((folder / _IMAGES).glob("*.tar"))
    if proxy is not ProxyName.KUBE_PROXY:
        images = [image for image in images if image.stem != ProxyName.KUBE_PROXY.value]
    return ClusterSpec(programs=programs, layout=layout, images=tuple(images))


def _require_image(proxy: ProxyName, folder: Path) -> None:
    image, base = folder / _IMAGES / f"{proxy.value}.tar", folder / _IMAGES / "kproxy.tar"
    if not base.exists():
        raise LabError(f"there is no {base}: `python -m images.build --output {base}` in a clone makes it")
    if proxy is ProxyName.KUBE_PROXY and not image.exists():
        program = folder / "kube-proxy"
        if not program.exists():
            raise LabError(f"there is no {program}: `kproxy lab cluster fetch` gets it from the release site")
        write_kube_proxy_image(program, base, image)


def install_proxy(cluster: LabCluster, name: str, documents: Sequence[object]) -> None:
    """Create a proxy's objects, and wait until its pods are ready on every node."""
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    rollout = ("rollout", "status", f"daemonset/{name}", f"--timeout={ROLLOUT_SECONDS}s")
    cluster.kubectl("-n", "kube-system", *rollout)


def _run(command: str, name: str, line: Callable[[session.ClusterSession], list[str]]) -> int:
    """Run a command line with this process's terminal while the cluster lives, or say why there is none."""
    try:
        found = session.find_session(name)
        with subprocess.Popen(line(found)) as child:
            _wait_for_either(child, found.pid)
    except LabError as reason:
        return cannot(command, reason)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _wait_for_either(child: subprocess.Popen[bytes], pid: int) -> None:
    """Wait for a program's end; end it when the process ``pid``, the cluster's session, has ended."""
    ends = [os.pidfd_open(child.pid), os.pidfd_open(pid)]
    try:
        readable, _, _ = select.select(ends, [], [])
        if ends[0] not in readable:
            child.terminate()
    finally:
        for end in ends:
            os.close(end)


def cannot(command: str, reason: Exception) -> int:
    """Report why a command could not do its work; returns its exit status."""
    sys.stderr.write(f"kproxy lab cluster {command}: {reason}\n")
    return CANNOT


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
