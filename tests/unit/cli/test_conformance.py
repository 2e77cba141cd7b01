"""Options of ``kproxy conformance cluster`` reach the fields of its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance.options import RunOptions
from kproxy.conformance.testbeds.cluster import command
from kproxy.conformance.testbeds.cluster.command import ClusterOptions

KEYWORDS = {
    "proxy": "mine.toml",
    "mode": "nftables",
    "sync-timeout": "7",
    "json": "a",
    "junit": "b",
    "markdown": "c",
    "html": "d",
    "evidence": "e",
    "xfails": "f",
}
OTHERS = {"agent-image": "i", "kubeconfig": "k", "context": "x", "client": "http://1", "remote": "http://2"}


def test_every_option_of_cluster_reaches_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[ClusterOptions] = []

    def run_in_cluster(options: ClusterOptions) -> int:
        received.append(options)
        return 0

    monkeypatch.setattr(command, "run_in_cluster", run_in_cluster)
    values = [token for name, text in (KEYWORDS | OTHERS).items() for token in (f"--{name}", text)]
    switches = ["--slow", "--allow-production"]
    assert main(["conformance", "cluster", *values, "--case", "a.*", "--case", "b", *switches]) == 0
    texts = {name: text for name, text in KEYWORDS.items() if name != "sync-timeout"}
    run = RunOptions(
        testbed="cluster",
        globs=("a.*", "b"),
        slow=True,
        sync_timeout=7.0,
        **texts | {"evidence": Path("e")},  # type: ignore[arg-type]
    )
    assert received == [
        ClusterOptions(
            run=run,
            image="i",
            kubeconfig="k",
            context="x",
            client="http://1",
            remote="http://2",
            allow_production=True,
        )
    ]
