"""A cluster of this machine's leaves the machine as it was, however it ends; and refuses what it cannot have."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kproxy.lab.cluster import control_groups, session
from kproxy.lab.cluster.cluster import HOME, PREFIX
from kproxy.lab.cluster.node import KERNEL_TUNABLES
from kproxy.lab.faults.machine_state import machine_state_changes, read_machine_state
from kproxy.lab.namespaces import LabError
from tests.kind.cluster import output
from tests.support.waiting import eventually

pytestmark = pytest.mark.local

NAME = "left-as-found"
CLUSTER = (sys.executable, "-m", "kproxy", "lab", "cluster")
UNLIKELY = {"vm/overcommit_memory": "0", "kernel/panic": "3", "kernel/panic_on_oops": "0"}
"""Values of the machine's that a kubelet would change."""
_PATIENCE = 240.0


def machine() -> dict[str, str]:
    """Everything of this machine that a cluster could leave something in."""
    found = dict(read_machine_state())
    found |= {name: Path("/proc/sys", name).read_text() for name in KERNEL_TUNABLES}
    found["links"] = "\n".join(sorted(path.name for path in Path("/sys/class/net").iterdir()))
    found["routes"] = output(["ip", "route", "show", "table", "all"])
    found["mounts"] = "\n".join(sorted(line.split(" ")[4] for line in _lines("/proc/self/mountinfo")))
    found["named namespaces"] = "\n".join(_names("/run/netns"))
    found["groups"] = "\n".join(sorted(filter(_is_ours, control_groups.groups_named(""))))
    found["folders"] = "\n".join(str(path) for path in sorted(HOME.glob(f"{PREFIX}*")) if _is_ours(path.name))
    for place in ("/run", "/var/lib", "/var/log", "/etc/cni", "/opt/cni", "/var/lib/cni", "/var/lib/kubelet"):
        found[f"files of {place}"] = "\n".join(_names(place))
    return found


def _is_ours(name: str) -> bool:
    """False for what belongs to a cluster of another session, which comes and goes meanwhile."""
    folders = [folder.name for folder in session.abandoned_folders()]
    with suppress(LabError):
        folders.append(Path(session.find_session(NAME).kubeconfig).parent.name)
    return not name.startswith(PREFIX) or name.startswith(tuple(folders))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).exists() else []


@pytest.fixture
def tunables() -> Iterator[None]:
    """A machine whose sysctls are not those that a kubelet wants: it is put back afterwards."""
    before = {name: Path("/proc/sys", name).read_text() for name in UNLIKELY}
    try:
        for name, value in UNLIKELY.items():
            Path("/proc/sys", name).write_text(value)
        yield
    finally:
        for name, value in before.items():
            Path("/proc/sys", name).write_text(value)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A session that is ready."""
    line = [*CLUSTER, "up", "--name", NAME, "--nodes", "1", "--proxy", "none", *arguments]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as up:
        try:
            assert up.stderr is not None
            lines = list[str]()
            for text in up.stderr:
                lines.append(text)
                if "ready:" in text:
                    break
            assert "ready:" in lines[-1], "".join(lines)
            yield up
        finally:
            up.kill()


@pytest.mark.usefixtures("tunables")
def test_a_machine_is_left_as_it_was_found() -> None:
    before = machine()
    with started() as up:
        nodes = output([*CLUSTER, "kubectl", "--name", NAME, "get", "nodes", "-o", "name"])
        assert nodes.split() == ["node/node-1"]
        inside = output(
            [*CLUSTER, "exec", "--name", NAME, "node/node-1", "--", "sysctl", "-n", "kernel.panic"]
        )
        assert inside.strip() == "10", "the kubelet did set it, where it cannot harm"
        during = machine()
        left_inside = subprocess.Popen([*CLUSTER, "exec", "--name", NAME, "client", "--", "sleep", "1000"])
        children = Path(f"/proc/{left_inside.pid}/task/{left_inside.pid}/children")
        assert eventually(children.read_text, 30), "it runs"
        assert output([*CLUSTER, "down", "--name", NAME]) == ""
        assert up.wait(60) == 0
        assert left_inside.wait(10) == 128 + signal.SIGTERM, "what runs there ends with the cluster"
    assert machine_state_changes(before, machine()) == []
    assert {name.partition(" ")[0] for name in before if before[name] != during[name]} == {
        "groups",
        "folders",
    }


def test_what_a_killed_session_leaves_the_next_one_removes() -> None:
    session.remove_abandoned()
    before = machine()
    with started() as up:
        folder = Path(session.find_session(NAME).kubeconfig).parent
        up.send_signal(signal.SIGKILL)
        up.wait()
        deadline = time.monotonic() + _PATIENCE
        while _running_below(folder):
            assert time.monotonic() < deadline, "the kernel has not ended its processes"
            time.sleep(0.1)
    assert machine_state_changes(before, machine()) != []
    with started():
        assert not folder.exists()
        output([*CLUSTER, "down", "--name", NAME])
    assert machine_state_changes(before, machine()) == []


def test_a_subject_file_runs_on_the_node_and_is_started_again(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nmodes = ["iptables"]\ncommand = ["{python}", "-m", "kproxy", "run", "--config", "{config}"]\n'
        '[environment]\nRUNTIME_DIRECTORY = "{directory}"\n'
    )
    on_node = [*CLUSTER, "exec", "--name", NAME, "node/node-1", "--"]
    kubernetes = ["curl", "-sk", "--max-time", "2", "https://10.96.0.1/version"]
    with started("--proxy", str(file)) as up:
        assert '"major"' in output([*on_node, *kubernetes])
        output([*on_node, "pkill", "-KILL", "-f", "kproxy run --config"])
        assert up.stderr is not None
        assert "proxy of node-1 has ended with -9, and is started again in 1 s" in up.stderr.readline()
        running = [*on_node, "pgrep", "-f", "kproxy run --config"]
        assert eventually(lambda: subprocess.run(running, check=False).returncode == 0, 30)
        output([*CLUSTER, "down", "--name", NAME])


def test_a_subject_that_ends_at_once_starts_no_cluster(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nmodes = ["x"]\ncommand = ["sh", "-c", "echo no such table on {node}; exit 7"]\n'
    )
    line = [*CLUSTER, "up", "--name", NAME, "--nodes", "1", "--proxy", str(file)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "up: proxy of node-1 has ended with 7: no such table on node-1\n" in done.stderr


def _running_below(folder: Path) -> list[int]:
    """Processes whose command lines name a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found
