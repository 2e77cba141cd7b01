"""A daemon whose node was prepared by ``--init-only`` may do no more than a container that is not privileged (``cfg.init-only``).

As the container runtime makes it: no capability but CAP_NET_ADMIN, and /proc/sys read-only.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import yaml

from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.lab.apiserver import ApiServer
from kproxy.lab.processes import listen_in, spawn
from tests.support.api_stage import ADDRESS, PORT, ApiStage, open_api_stage

CONFINE = """\
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
exec setpriv --bounding-set=-all,+net_admin --inh-caps=-all -- "$@"
"""
LISTINGS = {
    "iptables": ("iptables-save", "-t", "nat"),
    "nftables": ("nft", "list", "table", "ip", "kube-proxy"),
}


def configuration(made: ApiStage, mode: str) -> Path:
    """One that has something to prepare in every mode."""
    kubeconfig, config = made.folder / "kubeconfig", made.folder / "config.yaml"
    kubeconfig.write_text(ApiServer().kubeconfig(f"{ADDRESS}:{PORT}"))
    document = yaml.safe_load(
        kube_proxy_configuration(DEFAULT, NodeConfiguration(node="a", mode=mode, kubeconfig=str(kubeconfig)))
    )
    document["conntrack"]["tcpEstablishedTimeout"] = "1234s"
    config.write_text(yaml.safe_dump(document))
    return config


def daemon(config: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "kproxy", "run", "--config", str(config), *more]


def start_confined(made: ApiStage, config: Path) -> None:
    arguments = ["unshare", "--mount", "--propagation=private", "sh", "-ec", CONFINE, "sh", *daemon(config)]
    made.daemon = spawn(arguments, made.namespace, log=made.folder / "log")


@pytest.mark.parametrize("mode", LISTINGS)
def test_what_init_only_has_prepared_leaves_a_daemon_little_to_be_allowed(mode: str) -> None:
    async def run() -> None:
        async with open_api_stage() as made:
            made.listing = LISTINGS[mode]
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)])
            config = configuration(made, mode)
            made.namespace.run(daemon(config, "--init-only"))
            start_confined(made, config)
            await made.follows(1)

    asyncio.run(run())


def test_a_node_that_is_not_prepared_is_an_error_that_names_it() -> None:
    """Positive control."""

    async def run() -> None:
        async with open_api_stage() as made:
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)])
            start_confined(made, configuration(made, "nftables"))
            assert made.daemon is not None
            assert await asyncio.wait_for(made.daemon.wait(), 10) == 1
            log = (made.folder / "log").read_text()
            assert "nf_conntrack_tcp_timeout_established" in log
            assert "Traceback" not in log

    asyncio.run(run())
