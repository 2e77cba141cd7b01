"""``kproxy lab exec``, ``run_kubectl`` and ``stop_lab``: clients of a running lab's control socket.

A program is started here, as this command's child with its terminal and its files, inside the namespaces whose
descriptors the lab sends; when the lab ends, so does the program.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kproxy.tools.lab_session.control_socket import control_address

CANNOT = 2
_MOST = 3
_GOODBYE_SECONDS = 2.0
_libc = ctypes.CDLL(None, use_errno=True)

KUBECTL_HINT = (
    "kubectl is not installed (https://kubernetes.io/docs/tasks/tools/install-kubectl-linux/, or on Debian 13 and later "
    "`apt-get install kubernetes-client`)"
)


class LabUnavailable(Exception):
    """No lab is running, or it refused the request; the message has the remedy."""


def run_in_lab(name: str, where: str, argv: Sequence[str]) -> int:
    """Run a program in a place of the lab; returns its exit status, 2 when the lab does not provide the place."""
    try:
        with _connect(name) as lab:
            answer, descriptors = _request(lab, {"do": "exec", "where": where})
            try:
                return _run(lab, argv, answer, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
    except LabUnavailable as reason:
        sys.stderr.write(f"kproxy lab: {reason}\n")
        return CANNOT


def run_kubectl(name: str, arguments: Sequence[str]) -> int:
    """Run kubectl against the lab's API server."""
    if shutil.which("kubectl") is None:
        sys.stderr.write(f"kproxy lab kubectl: {KUBECTL_HINT}\n")
        return CANNOT
    return run_in_lab(name, "node/a", ["kubectl", *arguments])


def stop_lab(name: str) -> int:
    """End a lab, and wait until it is gone."""
    try:
        with _connect(name) as lab:
            _request(lab, {"do": "down"})
            lab.setblocking(True)
            while lab.recv(1):
                pass
    except ConnectionResetError:
        return 0
    except LabUnavailable as reason:
        sys.stderr.write(f"kproxy lab down: {reason}\n")
        return CANNOT
    return 0


def _connect(name: str) -> socket.socket:
    lab = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lab.connect(control_address(name))
    except OSError as error:
        lab.close()
        raise LabUnavailable(
            f"no lab called {name} is running here: `kproxy lab up -f dump.yaml` starts one"
        ) from error
    return lab


def _request(lab: socket.socket, request: Mapping[str, str]) -> tuple[dict[str, Any], list[int]]:
    lab.send(msgspec.json.encode(request))
    text, descriptors, _, _ = socket.recv_fds(lab, 1 << 16, _MOST)
    if not text:
        raise LabUnavailable("the lab did not answer: it is another user's, or it is ending")
    answer: dict[str, Any] = msgspec.json.decode(text)
    if "error" in answer:
        raise LabUnavailable(answer["error"])
    return answer, list(descriptors)


def _run(
    lab: socket.socket, argv: Sequence[str], answer: Mapping[str, Any], descriptors: Sequence[int]
) -> int:
    environment = {**os.environ, **answer.get("environment", {})}
    environment["PATH"] = f"{answer.get('path', '')}:{environment.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    home = Path.cwd()

    def enter() -> None:
        for descriptor in descriptors:
            if _libc.setns(descriptor, 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if len(descriptors) > 1:
            os.chdir(home)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it belongs to the child
    try:
        child = subprocess.Popen(list(argv), env=environment, preexec_fn=enter)  # noqa: PLW1509, S603
    except FileNotFoundError:
        raise LabUnavailable(f"{argv[0]}: there is no such program") from None
    except subprocess.SubprocessError as error:
        raise LabUnavailable(f"cannot enter the lab: is it root's? ({error})") from error
    try:
        return _wait(lab, child)
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(lab: socket.socket, child: subprocess.Popen[bytes]) -> int:
    """Wait for the program's end, or the lab's."""
    ended = os.pidfd_open(child.pid)
    try:
        readable, _, _ = select.select([lab.fileno(), ended], [], [])
    finally:
        os.close(ended)
    if readable == [lab.fileno()]:
        child.terminate()
        try:
            child.wait(_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
        raise LabUnavailable("the lab has ended, and the program with it")
    status = child.wait()
    return status if status >= 0 else 128 - status
