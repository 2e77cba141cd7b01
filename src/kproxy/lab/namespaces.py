"""Network namespaces that are held by nothing but a file descriptor.

Theory of operation. The usual namespace (``ip netns add``) is a bind mount under ``/run/netns``, which survives the
process that made it and has to be removed by name. A `Namespace` has no name there. `create_namespace` unshares a
thread, opens ``/proc/thread-self/ns/net``, and lets the thread return to its own namespace: from then on the
descriptor is the only reference. When it is closed, or the process that holds it dies in whatever way (SIGKILL, OOM),
the kernel removes the namespace with its links, routes, rules, ipsets and IPVS tables. So a lab cannot leak, and
concurrent labs have no names to collide. What else refers to a namespace keeps it alive: processes inside it, and
sockets made inside it.

A veth pair is removed with either end, so a link to another namespace of the lab needs no cleanup either.

``setns`` moves the calling *thread*, not the process. `Namespace.entered` moves it there and back around its body,
which may therefore contain no ``await``: another task of the event loop would run in the wrong namespace. Enter, make
the socket or start the process, leave. A socket stays in the namespace it was made in, whatever thread uses it; a
child process inherits the namespace of the thread that forks it. Reading ``/proc/net`` follows the thread, too
(``/proc/thread-self/net``).

Other processes open the namespace by `Namespace.path`, ``/proc/PID/fd/N``, e.g. as ``nsenter --net=PATH`` or ``ip
link ... netns``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from kproxy.linux import socket_constants

CLONE_NEWNET = 0x40000000
"""CLONE_NEWNET (linux/sched.h); Python has `os.unshare` only from 3.12."""

_THIS_THREAD = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


class _Thread(threading.local):
    """State of a thread; ``entered``: descriptor of the namespace that it is in, None for the process's own."""

    entered: int | None = None


_thread = _Thread()


class LabError(Exception):
    """Failure of the lab; the message names the reason and the remedy."""


class Namespace:
    """Network namespace, held by one descriptor until `close`."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor

    def __repr__(self) -> str:
        """Name in the lab."""
        return f"Namespace({self.name!r})"

    @property
    def path(self) -> str:
        """Path by which other processes (``ip link ... netns``, ``nsenter --net=``) can open it."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run the body with this thread in the namespace; the body must not ``await``."""
        home, outside = _own_namespace(), _thread.entered
        _setns(self.descriptor)
        _thread.entered = self.descriptor
        try:
            yield
        finally:
            _setns(home if outside is None else outside)
            _thread.entered = outside

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Non-blocking socket made inside; raises `LabError` when this process may open no more files."""
        try:
            with self.entered():
                return socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise LabError(
                    f"a socket in {self.name}: {error}; raise the limit: ulimit -n 65536"
                ) from error
            raise

    def start(self, argv: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        """Start a program inside (a child inherits the namespace of the thread that forks it)."""
        with self.entered():
            return subprocess.Popen(list(argv), **options)  # type: ignore[call-overload,no-any-return]

    def run(self, argv: Sequence[str], stdin: str = "") -> str:
        """Run a program inside to its end and return its output.

        Raises `LabError` with its stderr when it fails. It blocks: meant for short commands.
        """
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return communicate(self.start(argv, **pipes), stdin)

    def read(self, path: str) -> str:
        """Text of a file whose content depends on the namespace (``/proc/thread-self/net/...``)."""
        with self.entered():
            return Path(path).read_text()

    def link_address(self, interface: str) -> bytes:
        """The link-layer (MAC) address of an interface; OSError when there is none of that name."""
        with self.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            answer = fcntl.ioctl(
                control, socket_constants.SIOCGIFHWADDR, struct.pack("40s", interface.encode())
            )
        return answer[18:24]

    def activate_links(self) -> None:
        """Make every link that is up ready to send now.

        A link whose carrier has just come drops packets until the kernel's link watch, a deferred job, has run for
        it. Querying the link state the ethtool way runs it at once.
        """
        with self.entered():
            interfaces = [name for _, name in socket.if_nameindex()]
        with self.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for interface in interfaces:
                _link_state(control, interface)

    def addresses_settled(self) -> bool:
        """True if every IPv6 address of an interface receives packets and replies to solicitations.

        The kernel leaves that to a deferred job even without duplicate address detection; the job's last act is the
        address's route in the local table.
        """
        given = {line[:32] for line in self.read("/proc/thread-self/net/if_inet6").splitlines()}
        routes = (line.split() for line in self.read("/proc/thread-self/net/ipv6_route").splitlines())
        return given <= {route[0] for route in routes if int(route[8], 16) & socket_constants.RTF_LOCAL}

    def set(self, sysctls: Mapping[str, str]) -> None:
        """Write sysctls, by their path below ``/proc/sys/net``.

        Those of features that this kernel lacks are skipped.
        """
        with self.entered():
            for name, value in sysctls.items():
                with suppress(FileNotFoundError):
                    Path("/proc/sys/net", name).write_text(value)

    def close(self) -> None:
        """Close the descriptor; closing twice does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def communicate(process: subprocess.Popen[bytes], stdin: str = "") -> str:
    """Write a started program's stdin, wait for its end and return its output; `LabError` when it fails."""
    out, err = process.communicate(stdin.encode())
    if process.returncode:
        command = " ".join(map(str, process.args))  # type: ignore[arg-type]
        raise LabError(f"{command}: exit {process.returncode}: {err.decode(errors='replace').strip()}")
    return out.decode(errors="replace")


def create_namespace(name: str) -> Namespace:
    """Make an empty network namespace; ``name`` is its name in the lab only.

    Raises `LabError` without CAP_SYS_ADMIN.
    """
    home = os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)
    try:
        hint = " (run as root)" if os.geteuid() else ""
        _call(_libc.unshare(CLONE_NEWNET), f"create a network namespace{hint}")
        try:
            return Namespace(name, os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC))
        finally:
            _setns(home)
    finally:
        os.close(home)


class CurrentNamespace(Namespace):
    """The network namespace that this process is in already: nothing is entered, so no privilege is needed."""

    def __init__(self, name: str) -> None:
        super().__init__(name, os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run the body."""
        yield


@cache
def _own_namespace() -> int:
    """Descriptor of this process's network namespace, opened by a thread that is still in it."""
    return os.open(_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)


def _link_state(control: socket.socket, interface: str) -> bool:
    answer = (ctypes.c_uint32 * 2)(socket_constants.ETHTOOL_GLINK, 0)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(answer))
    with suppress(OSError):  # a device without a link state
        fcntl.ioctl(control, socket_constants.SIOCETHTOOL, request)
    return bool(answer[1])


def _setns(descriptor: int) -> None:
    _call(_libc.setns(descriptor, CLONE_NEWNET), "enter a network namespace")


def _call(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise LabError(f"cannot {what}: {os.strerror(number)}")
