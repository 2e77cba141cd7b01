"""Docker's engine for these tests: a running one, or Debian's, started in a network namespace of its own.

The latter makes no bridge and no rule, keeps everything in one folder below /var/lib, and ends with its test session:
the machine's own network is not affected.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import docker
import docker.errors

PATIENCE = 30.0
SOCKET = Path("/var/run/docker.sock")
MISSING = (
    "Docker's engine is not installed: apt-get install --no-install-recommends docker.io (it need not run)"
)

_ALONE = (
    *("unshare", "--net", "--mount", "--propagation=private"),
    *("sh", "-ec", 'mount -t tmpfs tmpfs /run; exec "$@"', "sh"),  # it leaves folders there
    *("setpriv", "--pdeathsig", "TERM", "--"),
)
_TOUCH_NOTHING = (
    "--bridge=none",
    "--iptables=false",
    "--ip6tables=false",
    "--ip-forward=false",
    "--ip-masq=false",
)


class NoEngine(Exception):
    """There is no engine; the message has the remedy."""


@contextmanager
def engine() -> Iterator[str]:
    """The address of an engine, for ``DOCKER_HOST``.  Raises `NoEngine`."""
    if there := running_engine():
        _answering(there)
        yield there
        return
    with own_engine() as address:
        yield address


def running_engine() -> str:
    """The address of an engine that runs already; empty for none.  The socket of one that was killed does not count."""
    if there := os.environ.get("DOCKER_HOST"):
        return there
    address = f"unix://{SOCKET}"
    try:
        _connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        return ""
    return address


@contextmanager
def own_engine() -> Iterator[str]:
    """An engine started here, removed without leftovers afterwards."""
    if shutil.which("dockerd") is None:
        raise NoEngine(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="kproxy-engine-", dir="/var/lib"))
    address = f"unix://{folder}/socket"
    places = (f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*_ALONE, "dockerd", *places, f"--host={address}", *_TOUCH_NOTHING], stdout=log, stderr=log
        )
    try:
        _answering(address, lambda: _ended(process, folder / "log"))
        yield address
    finally:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _ended(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise NoEngine(f"dockerd ended with {process.returncode}: {' / '.join(lines[-3:])}")


def _answering(address: str, check: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            _connect(address)
            with closing(docker.DockerClient(base_url=address)) as client:
                client.ping()
        except (docker.errors.DockerException, OSError) as error:
            check()
            if time.monotonic() > deadline:
                raise NoEngine(f"no engine answers at {address}: {error}") from error
            time.sleep(0.1)
        else:
            return


def _connect(address: str) -> None:
    """Raises OSError while nobody listens; docker's client would leave its socket open then."""
    kind, _, path = address.partition("://")
    if kind == "unix":
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """In order, so that it takes its containers and its containerd along; else by force."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
        return
    process.kill()
    process.wait()
