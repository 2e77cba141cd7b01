"""Proxies that misbehave: each gets a clear verdict soon, and nothing of it is left on the machine.

Each is judged by a run of its own, for one case.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kproxy.lab.processes import DIE_WITH_PARENT
from tests.support import bad_tools
from tests.support.marked_processes import processes
from tests.support.waiting import eventually

KPROXY = "{python} -m kproxy run --config {config}"
HANGS = "trap '' TERM INT HUP; echo I listen to nobody; while :; do sleep 1; done"
OUTSIDE = "kproxy-test-outside"
WRITES = "head -c 50000000 /dev/zero > {directory}/$n"
_ROOM = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
INSIDE = (*_ROOM, "sh", "-c", '"$@"; exit $?', "sh")
"""A machine of the run's own, whose first process stays where it is, for a subject that does get out."""

ON_A_MACHINE_THAT_IS_NEVER_SLOW = (
    "-c",
    "from kproxy.conformance.testbeds import lag; from kproxy.cli import main; lag.USUAL = 60.0; raise SystemExit(main())",
)
"""The harness without the control that divides a wait by the machine's slowness: ten seconds by a timer are ten seconds on
any machine, but divided by more than two, which other tests make of a small one, they are within the bound of five."""

PATIENCE = 3
WITHIN = 150.0
"""Seconds that a verdict may take on a busy machine; most come within ten, but who follows changes late is followed late."""

pytestmark = pytest.mark.timeout(WITHIN + 30)


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A subject: what it does, and what must be reported of it."""

    does: str
    reported: str | tuple[str, ...] = "1 passed"
    status: int = 0
    patience: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    harness: tuple[str, ...] = ("-m", "kproxy")
    case: str = "cluster-ip.every-endpoint-of-six"


BAD = {
    "follows-changes-by-its-resync-only": Bad(
        does=f"exec {KPROXY}",
        keys=('min-sync-period = "10s"',),
        harness=ON_A_MACHINE_THAT_IS_NEVER_SLOW,
        reported=(
            "lawful:  99 of 100 changes that come alone",
            "clauses: change.in-effect-soon",
            "1 case: 1 failed in",
        ),
        status=1,
        case="convergence.changes-are-in-effect-soon",
    ),
    "hangs-and-ignores-signals": Bad(
        does=HANGS,
        reported=(
            "failed profile default: the subject has not applied a Service within 3 s: node a IPv4",
            "1 case: 1 failed in",
        ),
        status=1,
        patience=PATIENCE,
    ),
    "is-not-there": Bad(
        does="exec ./no-such-proxy",
        reported=" ended with 127: sh: 1: exec: ./no-such-proxy: not found\n",
        status=1,
    ),
    "crashes": Bad(
        does="echo my settings are wrong; exit 3",
        reported=(
            " ended with 3: my settings are wrong\n",
            "command: sh -c 'echo my settings are wrong; exit 3'\n",
        ),
        status=1,
    ),
    "panics-at-the-first-service": Bad(
        does="exec {python} {directory}/daemon.py",
        files={"daemon.py": bad_tools.PANIC},
        reported=" ended with 2: panic: assignment to entry in nil map\n",
        status=1,
    ),
    "is-refused-every-service": Bad(
        does=f"{bad_tools.BESIDE} {KPROXY}",
        files={"iptables-restore": bad_tools.REFUSED},
        reported=(
            "a Service within 12 s: node a IPv4, node b IPv4: ",
            "NO-SUCH-CHAIN",
            "1 case: 1 failed in",
        ),
        status=1,
        patience=12,
    ),
    "never-starts-its-ipv6-half": Bad(
        does=f"{bad_tools.BESIDE} {KPROXY}",
        files={"ip6tables-restore": bad_tools.NOTHING},
        reported=("a Service within 12 s: node a IPv6, node b IPv6: ", "1 case: 1 failed in"),
        status=1,
        patience=12,
    ),
    "deadlocks-after-some-services": Bad(
        does=f"{bad_tools.BESIDE} {KPROXY}",
        files={"iptables-restore": bad_tools.STOPS},
        reported=("the subject has not applied a Service within 12 s: node ", "1 case: 1 failed in"),
        status=1,
        patience=12,
        case="cluster-ip.endpoints-come-and-go",
    ),
    "follows-changes-at-once": Bad(does=f"exec {KPROXY}", case="convergence.changes-are-in-effect-soon"),
    "goes-to-the-background": Bad(
        does=f"setsid {KPROXY} & sleep 0.2",
        reported="ended with 0; it must stay in the foreground: ",
        status=1,
    ),
    "floods-its-log": Bad(
        does=f"yes all is well & exec {KPROXY}", reported="MiB, 64 are allowed\nall is well\n", status=1
    ),
    "fills-its-folder": Bad(
        does=f"n=0; while :; do n=$((n+1)); {WRITES} || sleep 1; done",
        reported="MiB in {directory}, 256 are allowed",
        status=1,
    ),
    "fills-the-disk": Bad(
        does=f"head -c 1000000 /dev/zero > /var/tmp/{OUTSIDE} && exec {KPROXY}",
        reported=f"cannot create /var/tmp/{OUTSIDE}: Read-only file system",
        status=1,
    ),
    "has-children-that-stay": Bad(
        does=f"setsid sleep 1000 & exec {KPROXY}", case="restart.service-goes-meanwhile"
    ),
    "looks-for-the-machine": Bad(
        does=f"nsenter --target 1 --net nft add table ip {OUTSIDE} && nft list table ip {OUTSIDE} &&"
        f" ! echo 1 > /proc/sys/vm/panic_on_oom && exec {KPROXY}"
    ),
    "finds-the-machine": Bad(
        does=f"umount -l /proc; nsenter --net=/proc/1/ns/net nft add table ip {OUTSIDE};"
        f" mount -t proc proc /proc; exec {KPROXY}",
        reported="this machine was changed while the run went on, by the subject or by another process; no case depends on it: "
        f"nftables: + table ip {OUTSIDE}\n",
        prefix=INSIDE,
    ),
}


@dataclass(frozen=True)
class Verdict:
    """Exit status and output of a run, and what it has left behind."""

    status: int
    text: str
    left: list[str]


def start(bad: Bad, place: Path, mark: str) -> subprocess.Popen[bytes]:
    does = bad.does.replace('"', '\\"')
    lines = ('name = "bad"', 'modes = ["iptables"]', f'command = ["sh", "-c", "{does}"]', *bad.keys)
    files = (f"\"{name}\" = '''{text}'''" for name, text in bad.files.items())
    (place / "bad.toml").write_text("\n".join((*lines, "[files]", *files)), encoding="utf-8")
    patience = ("--sync-timeout", str(bad.patience)) if bad.patience else ()
    arguments = ("--kernel", "host", "--mode", "iptables", "--case", bad.case, *patience)
    with (place / "output").open("wb") as output:
        return subprocess.Popen(
            [
                *DIE_WITH_PARENT,
                *bad.prefix,
                sys.executable,
                *bad.harness,
                "conformance",
                "run",
                "--proxy",
                "bad.toml",
                *arguments,
            ],
            cwd=place,
            stdout=output,
            stderr=output,
            env={**os.environ, "KPROXY_TEST_MARK": mark, "TMPDIR": str(place), "KPROXY_PROGRESS": "all"},
        )


def judge(name: str, place: Path) -> Verdict:
    mark = f"bad-subject-{name}-{os.getpid()}"
    with start(BAD[name], place, mark) as run:
        try:
            status = run.wait(WITHIN)
        finally:
            run.kill()
    eventually(lambda: not processes(mark), 5)
    left = [*processes(mark), *map(str, place.glob("kproxy-lab-*"))]
    return Verdict(status, (place / "output").read_text(encoding="utf-8"), left)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_subject_gets_a_clear_verdict_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    bad, verdict = BAD[name], judge(name, tmp_path)
    for reported in (bad.reported,) if isinstance(bad.reported, str) else bad.reported:
        assert reported in verdict.text, verdict.text
    assert verdict.status == bad.status, verdict.text
    assert verdict.left == []
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    assert OUTSIDE not in tables
    assert Path("/proc/sys/vm/panic_on_oom").read_text(encoding="utf-8") == "0\n"
    assert not Path("/var/tmp", OUTSIDE).exists()  # noqa: S108 (looked at only)


def test_a_run_whose_subject_ignores_signals_ends_at_one(tmp_path: Path) -> None:
    run = start(Bad(does=HANGS, patience=PATIENCE), tmp_path, mark := f"bad-subject-signalled-{os.getpid()}")
    assert eventually(lambda: "changing" in (tmp_path / "output").read_text(encoding="utf-8"), 30)
    assert len(processes(mark)) >= 3, "the harness and a proxy on each node"
    run.send_signal(signal.SIGTERM)
    assert run.wait(10) == 130
    assert eventually(lambda: not processes(mark), 5), processes(mark)
    assert list(tmp_path.glob("kproxy-lab-*")) == []
