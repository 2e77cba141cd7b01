"""The harness as a person starts it: processes, a subject that works, and subjects that do not."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dpkt  # type: ignore[import-untyped]
import pytest

CASES = ("cluster-ip.reached-from-everywhere", "no-endpoints.*", "masquerade.*")
ONE_CASE = ("--case", "cluster-ip.reached-from-everywhere")
KPROXY = '["{python}", "-m", "kproxy", "run", "--config", "{config}"]'


def judge(*arguments: str, where: Path, command: str = "run") -> subprocess.CompletedProcess[str]:
    """`kproxy conformance run` (or ``command``) in iptables mode; evidence goes to ``where``."""
    kept = "--evidence" if command == "run" else "--out"
    fixed = ("--kernel", "host", "--mode", "iptables", kept, str(where / "evidence"))
    return subprocess.run(
        [sys.executable, "-m", "kproxy", "conformance", command, *fixed, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def subject(where: Path, command: str, **fields: str) -> str:
    """The path of a subject file; the values are TOML."""
    keys = {"name": '"mine"', "modes": '["iptables"]', "command": command, **fields}
    path = where / "mine.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in keys.items()), encoding="utf-8")
    return str(path)


def results(path: Path) -> dict[str, dict[str, Any]]:
    document = json.loads(path.read_text(encoding="utf-8"))
    return {entry["id"]: entry for entry in document["results"]}


def test_a_subject_that_is_right_passes_and_leaves_results_and_no_evidence(tmp_path: Path) -> None:
    globs = [word for glob in CASES for word in ("--case", glob)]
    done = judge(*globs, "--json", "-", where=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["subject"], document["mode"]) == ("kproxy", "iptables")
    assert {"kernel", "iptables", "nft", "subject"} <= document["environment"].keys()
    assert {entry["result"] for entry in document["results"]} <= {"passed", "not-runnable"}
    assert sum(entry["result"] == "passed" for entry in document["results"]) >= 10
    assert all({"id", "result", "clauses", "seconds"} <= entry.keys() for entry in document["results"])
    assert not (tmp_path / "evidence").exists()


def test_a_subject_that_never_programs_anything_is_reported_so_in_time(tmp_path: Path) -> None:
    idle = subject(tmp_path, '["sh", "-c", "echo I am idle; exec sleep 60"]')
    started = time.monotonic()
    done = judge(
        "--proxy", idle, *ONE_CASE, "--sync-timeout", "2", "--json", str(tmp_path / "r"), where=tmp_path
    )
    assert time.monotonic() - started < 30
    assert done.returncode == 1, done.stderr
    assert "the subject has not applied a Service within 2 s: node a IPv4" in done.stdout
    assert "I am idle" in done.stdout
    assert [entry["result"] for entry in results(tmp_path / "r").values()] == ["failed"]


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ('["sh", "-c", "echo my settings are wrong; exit 3"]', "3", "my settings are wrong"),
        ('["/no/such/proxy"]', "127", "/no/such/proxy"),
    ],
)
def test_a_subject_that_ends_at_once_is_reported_with_the_end_of_its_log(
    command: str, status: str, text: str, tmp_path: Path
) -> None:
    started = time.monotonic()
    done = judge("--proxy", subject(tmp_path, command), *ONE_CASE, where=tmp_path)
    assert time.monotonic() - started < 30
    assert done.returncode == 1, done.stderr
    assert f" ended with {status}: " in done.stdout
    assert text in done.stdout.partition(f"ended with {status}")[2]
    again = f"--proxy {tmp_path / 'mine.toml'} --mode iptables --kernel host --case 'cluster-ip.reached-from-everywhere'"
    assert again in done.stdout


def test_what_a_subject_does_not_claim_is_unsupported_and_the_rest_is_judged(tmp_path: Path) -> None:
    modest = subject(tmp_path, KPROXY, features="[]")
    arguments = (
        *ONE_CASE,
        "--case",
        "node-port.clients-outside-are-rewritten",
        "--json",
        str(tmp_path / "r"),
    )
    done = judge("--proxy", modest, *arguments, where=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {id: entry["result"] for id, entry in results(tmp_path / "r").items()}
    assert found == {
        "cluster-ip.reached-from-everywhere": "passed",
        "node-port.clients-outside-are-rewritten": "unsupported",
    }


def captured(path: Path) -> list[tuple[float, dpkt.tcp.TCP]]:
    """TCP segments of a capture, with their times."""
    with path.open("rb") as file:
        frames = [(at, dpkt.ethernet.Ethernet(data)) for at, data in dpkt.pcapng.Reader(file)]
    return [(at, frame.data.data) for at, frame in frames if isinstance(frame.data, dpkt.ip.IP)]


def marked_by_the_rule_that_is_wrong(counted: Path) -> int:
    """How many packets met the rule of the Service's chain that has the source rewritten, from any sender."""
    (line,) = re.findall(
        r"^iptables: \+(\d+)  nat  -A KUBE-SVC-.* -j KUBE-MARK-MASQ$", counted.read_text(), re.MULTILINE
    )
    return int(line)


def test_a_failure_is_status_1_with_evidence_of_both_nodes(tmp_path: Path) -> None:
    """A proxy that is configured to masquerade everything, where the case wants sources kept."""
    edit = "sed s/masqueradeAll:.false/masqueradeAll:\\\\ true/ {config} > {directory}/other.yaml"
    wrong = subject(
        tmp_path, f'["sh", "-c", "{edit} && exec {{python}} -m kproxy run --config {{directory}}/other.yaml"]'
    )
    done = judge("--proxy", wrong, *ONE_CASE, where=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lawful:  delivered to" in done.stdout
    assert "masquerade.cluster-ip.pod-source-preserved" in done.stdout
    folder = tmp_path / "evidence" / "cluster-ip.reached-from-everywhere" / "IPv4"
    state = ("iptables.txt", "conntrack.txt", "addresses.txt", "routes.txt", "metrics.txt", "proxy.log")
    assert {"objects.json", *(f"{node}.{name}" for node in "ab" for name in state)} <= {
        path.name for path in folder.iterdir()
    }
    assert "KUBE-SERVICES" in (folder / "a.iptables.txt").read_text(encoding="utf-8")
    reprobe = folder / "reprobe"
    assert "pod a2 -> web cluster ip\nseen: delivered to" in (reprobe / "reprobe.txt").read_text(
        encoding="utf-8"
    )
    assert marked_by_the_rule_that_is_wrong(reprobe / "a.counted.txt") == 8
    for before in reprobe.glob("*.before.txt"):
        after = before.with_name(before.name.replace(".before.", ".after."))
        assert before.read_text() != after.read_text(), "what did not change is not kept twice"
    reported = (reprobe / "decided.txt").read_text(encoding="utf-8")
    assert "masquerade.cluster-ip.pod-source-preserved" in reported.partition("\n\n")[0]
    assert "source masqueraded as the node" in reported
    assert "Service: cluster-ip-reached-from-everywhere-ipv4/web" in reported
    first = [
        packet for _, packet in captured(reprobe / "pcap" / "a2.pcapng") if packet.flags == dpkt.tcp.TH_SYN
    ]
    assert {packet.dport for packet in first} == {80}, "the pod's own packets, and nothing else"
    assert len(first) == 8
    elsewhere = (
        reprobe / "pcap" / "remote.pcapng"
    )  # what a kernel sends by itself may be there, and nothing of ours
    packets = captured(elsewhere) if elsewhere.exists() else []
    assert not [packet for _, packet in packets if isinstance(packet, dpkt.tcp.TCP)]


@pytest.mark.parametrize(
    "against",
    [
        pytest.param((), id="one subject"),
        pytest.param(("--against-mode", "nftables"), marks=pytest.mark.long, id="two"),
    ],
)
def test_generated_worlds_are_judged_on_the_kernel(against: tuple[str, ...], tmp_path: Path) -> None:
    """The lab's and the proxies' every step but shrinking, in an event loop that is already there."""
    done = judge("--worlds", "6", "--seed", "5", *against, where=tmp_path, command="fuzz")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"\d+ packets, \d+ with different outcomes, 0 of them unlawful" if against else r": \d+ passed",
        done.stdout,
    )
