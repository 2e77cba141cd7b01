"""Proxies of other projects: proxy.py for HTTP, microsocks for SOCKS 5."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.waiting import eventually

SERVER = "127.0.0.1"


def http_command(folder: Path, port: int, *options: str) -> list[str]:
    """Command of a proxy.py; with ``--cert-file`` and ``--key-file`` among the options it is reached by TLS."""
    listening = ("--hostname", SERVER, "--port", str(port), "--num-workers", "1", "--num-acceptors", "1")
    places = ("--data-dir", str(folder / "proxy.py"), "--pid-file", str(folder / "pid"))
    return [sys.executable, "-m", "proxy", *listening, *places, *options]


def socks_command(port: int, *options: str) -> list[str]:
    """Command of a microsocks."""
    program = shutil.which("microsocks")
    assert program, "this test needs a proxy of SOCKS 5: apt-get install microsocks"
    return [program, "-i", SERVER, "-p", str(port), *options]


@contextmanager
def http_proxy(folder: Path, *options: str) -> Iterator[int]:
    """Port of a running proxy.py with these options."""
    port = _free_port()
    with (folder / "log").open("wb") as log:
        argv = http_command(folder, port, *options)
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        try:
            assert eventually(lambda: process.poll() is not None or _listens(port), 20), "no answer"
            assert process.poll() is None, (folder / "log").read_text()
            yield port
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as made:
        made.bind((SERVER, 0))
        port: int = made.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with closing(socket.socket()) as made:
        return made.connect_ex((SERVER, port)) == 0
