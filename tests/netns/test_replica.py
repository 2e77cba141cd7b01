"""Somebody's cluster in the lab, by the commands that people give: kept up and visited, and held against another proxy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dumps import dump
from tests.support.paths import ROOT
from tests.support.waiting import eventually

EXAMPLE = ROOT / "docs" / "examples" / "cluster.yaml"
SERVICES = 30
"""Enough for each of the differences that are meant; 200 take 10 s (docs/tutorials/migrate-to-nftables.md)."""
KPROXY = [sys.executable, "-m", "kproxy"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KPROXY, *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def name() -> str:
    return f"test-{os.getpid()}"


@pytest.fixture
def lab(name: str) -> Iterator[subprocess.Popen[str]]:
    """A lab that is up."""
    arguments = ["lab", "up", "-f", str(EXAMPLE), "--mode", "nftables", "--kernel", "host", "--name", name]
    with subprocess.Popen([*KPROXY, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("from another shell" in line for line in lines), "it ended before it was up"
        try:
            yield process
        finally:
            process.kill()


def test_a_program_reads_where_a_labs_places_are(name: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.json"
    arguments = ["lab", "up", "-f", str(EXAMPLE), "--mode", "nftables", "--kernel", "host", "--name", name]
    with subprocess.Popen([*KPROXY, *arguments, "-o", "json", "--output", str(file)]) as process:
        try:
            assert eventually(lambda: file.exists() and file.read_text().endswith("}\n"), 60)
            found = json.loads(file.read_text())
            assert (found["subject"], found["mode"]) == ("kproxy", "nftables")
            nodes = {node["name"]: node for node in found["nodes"]}
            shown = in_lab(name, "node/node-a", "ip", "-o", "address").stdout
            assert nodes["node-a"]["addresses"]
            assert all(address in shown for address in nodes["node-a"]["addresses"])
            pods = [pod for node in nodes.values() for pod in node["pods"]]
            assert in_lab(name, pods[0], "true").returncode == 0
        finally:
            process.kill()


def in_lab(name: str, where: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return run("lab", "exec", "--name", name, where, "--", *argv)


def processes_of(directory: str) -> list[str]:
    """Command lines that mention a lab's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if directory in text:
            found.append(text.replace("\0", " "))
    return found


def directory_of(name: str) -> str:
    reported = in_lab(name, "node/node-a", "sh", "-c", "echo $KUBECONFIG").stdout.strip()
    return str(Path(reported).parents[1])


def test_a_lab_is_visited_from_another_shell_and_ends_without_a_trace(
    lab: subprocess.Popen[str], name: str
) -> None:
    directory = directory_of(name)
    fetch = "import urllib.request as u; print(u.urlopen('http://{}', timeout=5).read().decode())"
    seen = in_lab(name, "client", sys.executable, "-c", fetch.format("172.18.0.2:30080"))
    assert seen.stdout.startswith("pod default/web-0 at 10.244.1.11:8080, source 198.18.0.1:"), seen
    inside = in_lab(name, "pod/web-1", "ip", "-4", "-o", "addr", "show", "eth0").stdout
    assert "10.244.1.12/32" in inside
    assert "10.96.0.80" in in_lab(name, "node/node-b", "nft", "list", "table", "ip", "kube-proxy").stdout
    assert in_lab(name, "client", "sh", "-c", "exit 7").returncode == 7
    missing = in_lab(name, "pod/nobody", "true")
    assert (missing.returncode, "no such pod" in missing.stderr) == (2, True)
    assert processes_of(directory), "or their absence below would prove nothing"
    assert run("lab", "down", "--name", name).returncode == 0
    assert lab.wait(10) == 0
    assert eventually(lambda: not processes_of(directory))
    assert not Path(directory).exists()
    assert run("lab", "down", "--name", name).returncode == 2


def test_a_lab_that_is_killed_takes_its_proxies_and_visitors_with_it(
    lab: subprocess.Popen[str], name: str
) -> None:
    directory = directory_of(name)
    arguments = [*KPROXY, "lab", "exec", "--name", name, "pod/web-0", "--", "sleep", "60"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as visitor:
        assert len(processes_of(directory)) >= 2
        time.sleep(0.5)
        lab.send_signal(signal.SIGKILL)
        lab.wait(10)
        assert visitor.wait(10) == 2
        assert eventually(lambda: not processes_of(directory))
    shutil.rmtree(directory)


# ------------------------------------------------------------------------------ two proxies

BREAKER = """
name = "breaker"
modes = ["nftables"]
command = ["sh", "-c", "nft -f {directory}/break.nft && exec {python} -m kproxy run --config {config}"]
[files]
"break.nft" = '''
table ip breaker {
  chain prerouting {
    type filter hook prerouting priority raw
    ip daddr 10.96.0.80 tcp dport 80 drop
  }
}
'''
"""


def compare(path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run("compare", "-f", str(path), "--kernel", "host", "-o", "json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_modes_that_keep_their_word_differ_as_is_written_only(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_bytes(dump(SERVICES))
    status, reported = compare(cluster, "--a", "kproxy:iptables", "--b", "kproxy:nftables")
    assert (status, reported["unknown"], reported["not-observed"]) == (0, [], {})
    assert {"node-ports-on-localhost", "undefined-ports-are-refused"} <= {
        e["id"] for e in reported["intended"]
    }


def test_userspace_mode_differs_as_is_written_and_its_declarations_are_listed(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_bytes(dump(SERVICES))
    status, reported = compare(cluster, "--a", "kproxy:nftables", "--b", "kproxy:userspace")
    assert (status, reported["unknown"], reported["not-observed"]) == (0, [], {})
    assert {"node-ports-on-primary-addresses", "undefined-ports-are-refused"} <= {
        e["id"] for e in reported["intended"]
    }
    texts = [one["text"] for one in reported["declared"] if one["proxy"] == "kproxy:userspace"]
    assert "claims connectionRetry, the other does not" in texts
    assert any("no mark of that process" in text for text in texts)


def test_a_proxy_that_breaks_a_service_differs_unknown_and_is_called_unlawful(tmp_path: Path) -> None:
    broken = tmp_path / "breaker.toml"
    broken.write_text(BREAKER)
    status, reported = compare(EXAMPLE, "--a", "kproxy:nftables", "--b", f"{broken}:nftables")
    assert status == 1
    assert reported["unknown"]
    for one in reported["unknown"]:
        assert (one["service"], one["to"], one["unlawful"]) == (
            "default/web",
            "10.96.0.80:80/TCP",
            [False, True],
        )


def test_a_proxy_that_cannot_be_started_is_reported_with_its_log(tmp_path: Path) -> None:
    dead = tmp_path / "dead.toml"
    dead.write_text('name = "dead"\nmodes = ["any"]\ncommand = ["sh", "-c", "echo no such table; exit 3"]\n')
    arguments = [
        "compare",
        "-f",
        str(EXAMPLE),
        "--kernel",
        "host",
        "--a",
        "kproxy:nftables",
        "--b",
        f"{dead}:any",
    ]
    done = run(*arguments)
    assert done.returncode == 2
    assert "no such table" in done.stderr
