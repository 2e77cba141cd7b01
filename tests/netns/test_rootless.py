"""A user without root judges a proxy on this machine's kernel, and what it leaves is the user's own.

Where users may not make namespaces, it must say so and how to change it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.test_every import left_behind

NOBODY = 65534
USER = int(os.environ.get("SUDO_UID", NOBODY))
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--")
SOURCE = Path(__file__).parents[2] / "src"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
AGAIN = (
    "import subprocess, sys, kproxy.cli, msgspec, aiohttp, rich; "
    "subprocess.run([sys.executable, '-c', ''], check=True)"
)
"""An interpreter that can load the harness, and start itself once more as the harness does."""
PATIENCE = 30.0
WRONG = (
    '["sh", "-c", "sed s/masqueradeAll:.false/masqueradeAll:\\\\ true/ {config} > {directory}/other.yaml '
    '&& exec {python} -m kproxy run --config {directory}/other.yaml"]'
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the user's own, which the user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="kproxy-plain-"))
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that the user may run, with what is installed here."""
    for program in (sys.executable, f"/usr/bin/{VERSION}", f"/usr/local/bin/{VERSION}"):
        tried = subprocess.run(
            (*AS_USER, program, "-c", AGAIN),
            env=environment(Path("/")),
            cwd="/",
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return program
    return pytest.fail(
        f"user {USER} can run neither {sys.executable} nor /usr/bin/{VERSION} with {SOURCE}: "
        "have this clone and a Python where every user may read them (not below /root)"
    )


def environment(home: Path) -> dict[str, str]:
    libraries = (str(SOURCE), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONPATH": ":".join(dict.fromkeys(libraries)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def judging(python: str, home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*AS_USER, python, "-m", "kproxy", "conformance", "run", "--kernel", "rootless", *words),
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def allowed(python: str, home: Path) -> None:
    """Users may make namespaces; if not, the refusal is what there is to check, and the test ends with it."""
    probe = ("unshare", "--user", "--map-root-user", "--net", "--mount", "true")
    if subprocess.run((*AS_USER, *probe), capture_output=True, check=False).returncode == 0:
        return
    with judging(python, home, "--mode", "iptables") as process:
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "kernel.unprivileged_userns_clone=1" in out
    pytest.skip("users may not make namespaces here, and are told what root can do about it")


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_more_rules_than_one_message_holds_are_judged(variant: str, python: str, home: Path) -> None:
    """iptables-nft sends a transaction as one message, and in a user namespace its size is bounded."""
    words = (
        "--mode",
        "iptables",
        "--iptables",
        variant,
        "--case",
        "cluster-ip.*",
        "--case",
        "no-endpoints.*",
    )
    with judging(python, home, *words, "--json", "results.json") as process:
        out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert out.startswith("kernel: rootless (")
    document = json.loads((home / "results.json").read_text())
    assert document["environment"]["kernel-choice"] == "rootless"
    results = [entry["result"] for entry in document["results"]]
    assert set(results) <= {"passed", "not-runnable"}
    assert results.count("passed") > 25
    assert (home / "results.json").stat().st_uid == USER
    assert [path.name for path in home.iterdir()] == ["results.json"]
    assert left_behind(home) == []


@pytest.mark.usefixtures("allowed")
def test_a_failure_leaves_evidence_that_belongs_to_the_user(python: str, home: Path) -> None:
    (home / "wrong.toml").write_text(f'name = "wrong"\nmodes = ["iptables"]\ncommand = {WRONG}\n')
    words = ("--mode", "iptables", "--proxy", "wrong.toml", "--case", "cluster-ip.reached-from-everywhere")
    with judging(python, home, *words) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 1, out
    assert "lawful:  delivered to" in out
    files = [path for path in (home / "evidence").rglob("*") if path.is_file()]
    assert {"a.iptables.txt", "b.proxy.log", "objects.json"} <= {path.name for path in files}
    assert {path.stat().st_uid for path in files} == {USER}


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_all_modes_and_leaves_no_process(
    number: signal.Signals, status: int, python: str, home: Path
) -> None:
    """Two runs, one after the other, each in namespaces of its own."""
    (home / "idle.toml").write_text('name = "idle"\nmodes = ["iptables"]\ncommand = ["sleep", "1000"]\n')
    with judging(python, home, "--proxy", "idle.toml", "--case", "cluster-ip.*") as process:
        assert process.stdout
        while "changing objects" not in (line := process.stdout.readline()):
            assert line, "the run ended before it began"
        assert left_behind(home), "nothing could be found at all: what follows would mean nothing"
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    deadline = time.monotonic() + PATIENCE
    while (left := left_behind(home)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
