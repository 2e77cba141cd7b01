"""Run upstream's tests against one proxy in one mode: ``python -m tests.e2e --proxy kproxy --mode nftables``.

e2e.test and ginkgo are in the folder of Kubernetes' programs (``KUBEBUILDER_ASSETS``), built from Kubernetes' source
outside of this repository, and the images that `images.e2e` makes beside them.  Tests run in the switch's network, where a
client outside of the nodes is.  Results are written as upstream's program writes them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from images.e2e import FOLDER
from kproxy.lab.cluster.cluster import INSIDE_KUBECONFIG, LabCluster
from kproxy.lab.cluster.command import cluster_spec, install_proxy
from kproxy.lab.cluster.service_proxy import ProxyName, proxy_documents
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import spawn
from kproxy.lab.topology import SWITCH
from tests.kind.local import options

SELECTION = Path(__file__).with_name("selection.toml")
NEEDED = ("e2e.test", "ginkgo", f"{FOLDER}/e2e-agnhost.tar")
CANNOT = 2


@dataclass(frozen=True)
class Selection:
    """Regular expressions over full names; ``skip``: with the reason of each."""

    focus: tuple[str, ...]
    skip: Mapping[str, str]


def read_selection(path: Path = SELECTION) -> Selection:
    """The selection in a file."""
    table = tomllib.loads(path.read_text())
    return Selection(tuple(table["focus"]), {one["pattern"]: one["reason"] for one in table["skip"]})


def ginkgo_arguments(folder: Path, kubeconfig: Path, output: Path, order: argparse.Namespace) -> list[str]:
    """Command line of the tests."""
    selection = read_selection()
    focus = order.focus or "|".join(selection.focus)
    return [
        str(folder / "ginkgo"),
        f"--procs={order.processes}",
        f"--focus={focus}",
        f"--skip={'|'.join(selection.skip)}",
        "--no-color",
        f"--timeout={order.timeout}",
        f"--output-dir={output}",
        "--junit-report=junit.xml",
        str(folder / "e2e.test"),
        "--",
        f"--kubeconfig={kubeconfig}",
        "--provider=skeleton",
        f"--num-nodes={order.nodes}",
        f"--kubectl-path={folder / 'kubectl'}",
        "--allowed-not-ready-nodes=0",
    ]


def count(junit: Path) -> Counter[str]:
    """Numbers of tests by status; those that were not chosen are ``skipped``."""
    cases = ET.parse(junit).iter("testcase")  # noqa: S314 (written by upstream's program just now)
    return Counter(case.get("status", "unknown") for case in cases if case.get("name", "").startswith("[It]"))


async def run(order: argparse.Namespace, output: Path) -> int:
    """Exit status of the tests."""
    proxy = ProxyName(order.proxy)
    up = options(order.mode, proxy, order.nodes)
    spec = cluster_spec(up)
    folder = spec.programs.kubelet.parent
    if missing := [name for name in NEEDED if not (folder / name).exists()]:
        raise LabError(
            f"there is no {', no '.join(missing)} in {folder}: docs/results/e2e/README.md has the steps"
        )
    spec = replace(spec, images=(*spec.images, *sorted((folder / FOLDER).glob("*.tar"))))
    async with LabCluster(spec, lambda step: print(step, file=sys.stderr)) as cluster:
        documents = proxy_documents(proxy, order.mode, spec.programs.kubectl, up.deploy)
        if documents:
            await asyncio.to_thread(install_proxy, cluster, proxy.value, documents)
        kubeconfig = cluster.folder / INSIDE_KUBECONFIG
        arguments = ginkgo_arguments(folder, kubeconfig, output, order)
        process = spawn(arguments, cluster.network[SWITCH], log=output / "ginkgo.log", env=dict(os.environ))
        try:
            return await process.wait()
        finally:
            process.kill()
            cluster.check()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the tests, 2 where they cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__.splitlines()[0])
    parser.add_argument("--proxy", choices=[name.value for name in ProxyName], default="kproxy")
    parser.add_argument("--mode", choices=["iptables", "nftables"], default="nftables")
    parser.add_argument("--focus", help="another regular expression than those of the selection")
    parser.add_argument("--nodes", type=int, default=6, help="two in each of three zones (default: 6)")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--timeout", default="40m")
    parser.add_argument("--output", type=Path, default=Path("build/e2e"))
    order = parser.parse_args(arguments)
    output = (order.output / f"{order.proxy}-{order.mode}").absolute()
    output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        status = asyncio.run(run(order, output))
    except LabError as reason:
        print(f"tests.e2e: {reason}", file=sys.stderr)
        return CANNOT
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(count(output / "junit.xml").items()))
    print(f"{order.proxy} {order.mode}: {counts} in {(time.monotonic() - began) / 60:.1f} min; {output}")
    return status


if __name__ == "__main__":
    sys.exit(main())
