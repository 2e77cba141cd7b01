"""A kernel that takes nothing from a program, nor from what it starts, for a while; everything else goes on."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kproxy.lab.faults import write_faults
from kproxy.lab.namespaces import Namespace, create_namespace
from kproxy.lab.processes import Process, spawn
from kproxy.model.network import Family

SHELL = """
import subprocess, sys
for line in sys.stdin:
    try:
        print(subprocess.call(line, shell=True), flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
"""Runs the lines it is given, as long as it is given any, and prints how each ended, or the errno of its start."""

WRITES = {
    "nft": "nft add table ip t{}",
    "ipset": "ipset create s{} hash:ip",
    "iptables-nft": "iptables-nft -t nat -N N{}",
    "iptables-legacy": "iptables-legacy -t nat -N L{}",
    "ip6tables-legacy": "ip6tables-legacy -t filter -N L{}",
    "iptables-nft-restore": r"printf '*nat\n:R{} - [0:0]\nCOMMIT\n' | iptables-nft-restore --noflush",
    "conntrack": "conntrack -I -p udp -s 192.0.2.1 -d 192.0.2.2 --sport 1{0} --dport 2 -t 60"
    " --reply-src 192.0.2.2 --reply-dst 192.0.2.1 --reply-port-src 2 --reply-port-dst 1{0}",
    "address": "ip address add 192.0.2.{} dev lo",
    "route": "ip link set lo up && ip route add 198.51.100.{} dev lo",
}
OF_IPV6 = {
    "nft": "nft add table ip6 t{}",
    "ip6tables-nft": "ip6tables-nft -t nat -N N{}",
    "ip6tables-legacy": "ip6tables-legacy -t filter -N L{}",
    "ip6tables-nft-restore": r"printf '*nat\n:R{} - [0:0]\nCOMMIT\n' | ip6tables-nft-restore --noflush",
    "address": "ip address add 2001:db8::{}/128 dev lo",
    "route": "ip link set lo up && ip route add 2001:db8:1::{}/128 dev lo",
}
OF_IPV4 = {name: command for name, command in WRITES.items() if name not in {"ip6tables-legacy", "ipset"}}
READS = ("ip address show", "ip route show", "ls /proc/net", "echo 1 >/dev/null")


class Program:
    """A program in a namespace that runs the commands written to its standard input."""

    def __init__(self, namespace: Namespace) -> None:
        self._popen = namespace.start(
            [sys.executable, "-c", SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._popen.pid

    def status(self, command: str) -> int:
        assert self._popen.stdin
        assert self._popen.stdout
        self._popen.stdin.write(f"({command}) >/dev/null\n".encode())
        self._popen.stdin.flush()
        return int(self._popen.stdout.readline())

    def close(self) -> None:
        self._popen.communicate()


@pytest.fixture
def program() -> Iterator[Program]:
    with closing(create_namespace("refusal")) as namespace, closing(Program(namespace)) as program:
        yield program


@contextmanager
def refused(*processes: int, family: Family | None = None, seconds: float = 0.0) -> Iterator[None]:
    with asyncio.Runner() as runner:
        refusal = runner.run(write_faults.inject_write_errors(processes, errno.ENOBUFS, family, seconds))
        try:
            yield
        finally:
            runner.run(refusal.end())


def test_a_failure_may_come_late(program: Program) -> None:
    command = next(iter(WRITES.values()))
    with refused(program.pid, seconds=0.2):
        began = time.monotonic()
        assert program.status(command.format(1)) != 0
        assert time.monotonic() - began > 0.2


@pytest.mark.parametrize(
    ("reads", "command", "late"),
    [
        (False, "nft list tables", False),
        (True, "nft list tables", True),
        (False, "nft add table ip t1", True),
        (False, "ipset list", False),
        (False, "ipset create s1 hash:ip", True),
    ],
)
def test_writes_may_be_late_and_queries_with_them_or_not(
    program: Program, command: str, *, reads: bool, late: bool
) -> None:
    with asyncio.Runner() as runner:
        delay = runner.run(write_faults.delay_writes([program.pid], 0.5, reads=reads))
        try:
            began = time.monotonic()
            assert program.status(command) == 0
            assert (time.monotonic() - began >= 0.5) is late
        finally:
            runner.run(delay.end())


def test_where_memory_is_short_some_writes_and_starts_fail_and_some_do_not(program: Program) -> None:
    """By its path: a shell that looks for a program in PATH starts the next one of that name where the first start fails."""
    nft = shutil.which("nft")
    with asyncio.Runner() as runner:
        fault = runner.run(write_faults.refuse_some([program.pid], errno.ENOMEM, 0.0, seed=1))
        try:
            seen = {program.status(f"{nft} add table ip t && echo ran") for _ in range(40)}
        finally:
            runner.run(fault.end())
    not_started, not_executed, not_written = errno.ENOMEM, 126, 1
    assert seen == {0, not_started, not_executed, not_written}
    assert {program.status("nft add table ip t") for _ in range(40)} == {0}


def test_tools_fail_and_work_again(program: Program) -> None:
    before = {name: program.status(command.format(1)) for name, command in WRITES.items()}
    with refused(program.pid):
        meanwhile = {name: program.status(command.format(2)) for name, command in WRITES.items()}
        read = {command: program.status(command) for command in READS}
    after = {name: program.status(command.format(2)) for name, command in WRITES.items()}
    assert set(before.values()) == {0}, before
    assert 0 not in meanwhile.values(), meanwhile
    assert set(read.values()) == {0}, read
    assert set(after.values()) == {0}, f"something of it was done all the same: {after}"


@pytest.mark.parametrize(
    ("family", "refuses", "takes"), [(Family.IPV6, OF_IPV6, OF_IPV4), (Family.IPV4, OF_IPV4, OF_IPV6)]
)
def test_writes_of_one_family_alone_fail(
    program: Program, family: Family, refuses: dict[str, str], takes: dict[str, str]
) -> None:
    with refused(program.pid, family=family):
        fails = {name: program.status(command.format(2)) for name, command in refuses.items()}
        works = {name: program.status(command.format(2)) for name, command in takes.items()}
    after = {name: program.status(command.format(2)) for name, command in refuses.items()}
    assert 0 not in fails.values(), fails
    assert set(works.values()) == {0}, works
    assert set(after.values()) == {0}, f"something of it was done all the same: {after}"


WRITER = """
import socket, sys
message = (20).to_bytes(4, sys.byteorder) + bytes([1, 10, 5, 0]) + bytes(12)  # all tables of nf_tables
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12).send(message)
except OSError as error:
    sys.exit(error.errno)
"""


def test_a_program_that_speaks_netlink_itself_is_refused_with_the_errno(
    program: Program, tmp_path: Path
) -> None:
    tmp_path.joinpath("writer.py").write_text(WRITER)
    command = f"{sys.executable} {tmp_path}/writer.py"
    assert program.status(command) == 0
    with refused(program.pid):
        assert program.status(command) == errno.ENOBUFS


def test_what_was_started_before_is_refused_too(tmp_path: Path) -> None:
    with closing(create_namespace("refusal")) as namespace:
        writes = "until [ -e go ]; do sleep 0.01; done; nft add table ip t; echo ended $?"
        process = spawn(["sh", "-c", f"cd {tmp_path}; ({writes}) & wait"], namespace, log=tmp_path / "log")
        with refused(process.pid):
            tmp_path.joinpath("go").touch()
            asyncio.run(ended(process))
    assert "ended 1" in tmp_path.joinpath("log").read_text()


async def ended(process: Process) -> None:
    async with asyncio.timeout(20):
        await process.wait()


def test_what_has_ended_is_refused_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with refused(gone.pid):
        pass


def test_this_machine_can_be_made_to_refuse() -> None:
    assert write_faults.write_faults_unavailable() == ""
