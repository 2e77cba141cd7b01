"""What is said to ``kproxy conformance cluster`` arrives, every word of it."""

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
    "patience": "7",
    "json": "a",
    "junit": "b",
    "markdown": "c",
    "html": "d",
    "evidence": "e",
    "xfails": "f",
}
OTHERS = {"agent-image": "i", "kubeconfig": "k", "context": "x", "client": "http://1", "remote": "http://2"}


def test_every_word_is_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[ClusterOptions] = []

    def hear(options: ClusterOptions) -> int:
        heard.append(options)
        return 0

    monkeypatch.setattr(command, "run_in_cluster", hear)
    said = [word for name, text in (KEYWORDS | OTHERS).items() for word in (f"--{name}", text)]
    assert main(["conformance", "cluster", *said, "--case", "a.*", "--case", "b", "--slow", "--really"]) == 0
    texts = KEYWORDS | {"patience": 7.0, "evidence": Path("e")}
    run = RunOptions(testbed="cluster", globs=("a.*", "b"), slow=True, **texts)  # type: ignore[arg-type]
    assert heard == [
        ClusterOptions(
            run=run,
            image="i",
            kubeconfig="k",
            context="x",
            client="http://1",
            remote="http://2",
            really=True,
        )
    ]
