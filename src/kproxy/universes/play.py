"""Plays a schedule inside a guest: lab, API server, proxies, changes, faults and probes; prints a recording.

With `faults` and `other_program` these are the only modules of this package that touch the guest's kernel. Packets are judged outside,
by `judge`. Here the subject itself can fail: its proxy ends or never settles, rules of another program are gone, or its
cleanup fails, leaves something, or removes what is not its own.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import (
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import Change, Put, Remove, World
from kproxy.conformance.case import DEFAULT, Probe, Send
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError, SubjectFailed
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.conformance.testbeds.proxies import Proxies
from kproxy.lab.apiserver import ApiServer
from kproxy.lab.apiserver.resources import ResourceKind
from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.namespaces import LabError
from kproxy.lab.node_objects import describe_difference, list_objects, write_modprobe
from kproxy.lab.processes import Usage, Xtables, run_in
from kproxy.lab.topology import NODES
from kproxy.model.network import Protocol
from kproxy.spec.outcome import Delivered
from kproxy.universes.faults import UniverseFaults
from kproxy.universes.other_program import OtherProgram
from kproxy.universes.recording import (
    SECOND,
    CaughtUp,
    Changed,
    Failed,
    FaultBegan,
    FaultEnded,
    FlowExchanged,
    HealthChecked,
    Line,
    LogEnded,
    Probed,
    StateRead,
    encode_line,
    outcomes_text,
)
from kproxy.universes.schedule import (
    OF_MACHINE,
    OF_NODE,
    Schedule,
    TimedChange,
    TimedCheck,
    TimedFault,
    TimedFlow,
    TimedProbe,
)
from kproxy.universes.stop import read_stop, read_until

PATIENCE = 0.9
"""Seconds to wait for an answer: less than until TCP sends its first packet again."""
BETWEEN_LOOKS = 0.5
"""Seconds between two looks at the watches that come back after a fault."""
CLIENTS_GONE = 1.0
"""Seconds between the end of all clients and the look at what the proxies hold."""
MOST_GROWN = Usage(descriptors=16, threads=16, memory=128)
"""Growth of a proxy's process that is lawful from beginning to end: sockets of health check node ports, and in a
program in Go what it has not collected (`kproxy.universes.launch.GO`). Our choice: proxies seen here gained 3, 2 and 21."""
_FOLDER = Path("/dev/shm/universe")  # noqa: S108 (a guest's own)
_RESOLUTION = time.get_clock_info("monotonic").resolution


@dataclass
class Universe:
    """Running universe; ``before``: what was on each node before the proxies; ``write``: receives the lines of its recording."""

    schedule: Schedule
    instance: Instance
    lab: Lab
    server: ApiServer
    proxies: Proxies
    testbed: NetnsTestbed
    other_program: OtherProgram
    before: Mapping[str, frozenset[str]]
    write: Callable[[Line], None]
    loop: asyncio.AbstractEventLoop = field(init=False)
    world: World = field(init=False)
    watches: Counter[ResourceKind] = field(init=False)
    """Watches that the settled proxies have open."""
    usage: Mapping[str, Sequence[Usage]] = field(init=False)
    """Resources of the settled proxies, by node."""
    faults: UniverseFaults = field(init=False)
    began: float = 0

    def __post_init__(self) -> None:
        self.faults = UniverseFaults(
            self.schedule.seed, self.server, self.lab.network, self.proxies, self.other_program
        )
        self.loop = asyncio.get_running_loop()
        self.world = World(self.instance)
        self.watches = Counter(self.server.current_watches)
        self.usage = {node: self.proxies.usage(node) for node in NODES}

    @property
    def now(self) -> int:
        """Nanoseconds since the beginning, by the event loop's clock."""
        return round((self.loop.time() - self.began) * SECOND)

    async def play(self, until: float) -> None:
        """Do all that the schedule says, at its times, but nothing after ``until``."""
        self.began = self.loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(until):
                await self._play()
        self.proxies.check()
        for node in NODES:
            if lost := await self.other_program.lost_rules(node):
                raise SubjectFailed(f"rules of another program are gone from node {node}: {lost}")

    async def check_usage(self) -> None:
        """Raise `SubjectFailed` if a proxy that has nothing left to do holds more than `MOST_GROWN` beyond what it held in the beginning.

        The clients leave first: a relay holds a connection for as long as its client does, also one that the client gave up.
        """
        self.lab.close_flows()
        await asyncio.sleep(CLIENTS_GONE)
        for node in NODES:
            for before, now in zip(self.usage[node], self.proxies.usage(node), strict=True):
                if complaint := describe_growth(before, now):
                    raise SubjectFailed(f"the proxy of node {node} {complaint}")

    async def clean_up(self) -> None:
        """End the proxies and have the subject remove what it left. Raises `SubjectFailed` if something stays, or goes too far."""
        if not self.proxies.can_clean_up:
            return
        for node in NODES:
            await self.proxies.clean_up(node)
            there = await list_objects(self.lab.network[node], self.proxies.tools)
            if complaint := describe_difference(self.before[node], there):
                raise SubjectFailed(f"its cleanup {complaint} on node {node}")

    async def _play(self) -> None:
        faults = enumerate(self.schedule.faults)
        probes = enumerate(self.schedule.probes)
        flows = enumerate(self.schedule.flows)
        checks = enumerate(self.schedule.checks)
        await asyncio.gather(
            self._make_changes(),
            *(self._at(fault.at, self._have(number, fault)) for number, fault in faults),
            *(self._at(probe.at, self._probe(number, probe)) for number, probe in probes),
            *(self._at(flow.at, self._hold(number, flow)) for number, flow in flows),
            *(self._at(check.at, self._check(number, check)) for number, check in checks),
        )

    async def read_state(self, commands: Iterable[Sequence[str]]) -> None:
        """Record what commands print, each a namespace and an argument vector."""
        for namespace, *argv in commands:
            at = self.now
            try:
                text = await run_in(self.lab.network[namespace], argv)
            except KeyError:
                text = f"there is no namespace {namespace}\n"
            except (LabError, OSError) as error:
                text = f"{error}\n"
            self.write(StateRead(at=at, namespace=namespace, command=shlex.join(argv), text=text))

    async def _at(self, seconds: float, what: Coroutine[None, None, None]) -> None:
        await self._sleep_until(seconds)
        await what

    async def _sleep_until(self, seconds: float) -> None:
        """Sleep until a time, never less: the event loop's timers fire early by up to the resolution of its clock."""
        if (left := seconds - self.now / SECOND) > 0:
            await asyncio.sleep(left + _RESOLUTION)

    async def _make_changes(self) -> None:
        """Make the changes, those of one moment in their order, which timers of the event loop do not keep."""
        for number, change in enumerate(self.schedule.changes):
            time_of = partial(_time_of_write, change)
            await self._sleep_until(change.at)
            self.write(Changed(at=self.now, number=number))
            writes = self.world.apply_step(change.step)
            for at, of_one_time in groupby(sorted(writes, key=time_of), key=time_of):
                await self._sleep_until(at)
                await self.testbed.change(list(of_one_time))

    async def _probe(self, number: int, probe: TimedProbe) -> None:
        step = Probe(sender=probe.sender, to=probe.to, expect=frozenset())
        begin = self.now
        try:
            (seen,) = await self.testbed.probe(self.instance, step, 1)
        except HarnessError as reason:
            self.write(Probed(at=begin, until=self.now, number=number, unclear=str(reason)))
        else:
            outcomes = outcomes_text(seen.outcomes)
            self.write(Probed(at=begin, until=self.now, number=number, outcomes=outcomes, text=seen.text))

    async def _check(self, number: int, check: TimedCheck) -> None:
        begin = self.now
        seen = await self.testbed.check_health(self.instance, check.step)
        self.write(HealthChecked(at=begin, until=self.now, number=number, text=seen.text))

    async def _hold(self, number: int, flow: TimedFlow) -> None:
        """Exchange on a flow until the end, and open it again where it has ended."""
        opened = False
        while self.now < self.schedule.end * SECOND:
            opened = await self._exchange(number, flow, opened=opened)
            await self._sleep_until(self.schedule.next_exchange(flow, self.now / SECOND))

    async def _exchange(self, number: int, flow: TimedFlow, *, opened: bool) -> bool:
        """Exchange on a flow, opened or to be opened; returns if it is still of use.

        A connection is as long as it is answered, a socket for datagrams until its own kernel reports an error.
        """
        step, begin = flow.open_step(number), self.now
        try:
            if opened:
                seen = await self.testbed.send_on_flow(
                    self.instance, Send(flow=step.flow, expect=frozenset())
                )
            else:
                seen = await self.testbed.open_flow(self.instance, step)
        except HarnessError as reason:
            self.write(
                FlowExchanged(at=begin, until=self.now, number=number, opened=not opened, unclear=str(reason))
            )
            return False
        outcomes = outcomes_text(seen.outcomes)
        self.write(
            FlowExchanged(
                at=begin,
                until=self.now,
                number=number,
                opened=not opened,
                outcomes=outcomes,
                text=seen.text,
            )
        )
        datagrams = self.instance.destination(flow.to)[2] is Protocol.UDP
        if datagrams:
            return bool(seen.outcomes)
        return any(isinstance(outcome, Delivered) for outcome in seen.outcomes)

    async def _have(self, number: int, fault: TimedFault) -> None:
        """Have a fault from now until its end."""
        self.write(FaultBegan(at=self.now, number=number))
        async with self.faults.during(number, fault):
            await asyncio.sleep(fault.seconds)
        self.write(FaultEnded(at=self.now, number=number))
        if fault.kind not in OF_NODE | OF_MACHINE and await self._catch_up(fault.recovered):
            self.write(CaughtUp(at=self.now, number=number))

    async def _catch_up(self, until: float) -> bool:
        """Wait until as many watches as in the beginning have been sent all there is; false if that takes too long."""
        while self.now < until * SECOND:
            if Counter(self.server.current_watches) >= self.watches:
                return True
            await asyncio.sleep(BETWEEN_LOOKS)
        return False


def describe_growth(before: Usage, now: Usage) -> str:
    """Text of what a process holds too much of; empty if it is not more than `MOST_GROWN` beyond the beginning."""
    if now.descriptors > before.descriptors + MOST_GROWN.descriptors:
        return f"has {now.descriptors} descriptors open, {before.descriptors} in the beginning"
    if now.threads > before.threads + MOST_GROWN.threads:
        return f"has {now.threads} threads, {before.threads} in the beginning"
    if now.memory > before.memory + MOST_GROWN.memory:
        return f"has {now.memory} MiB of memory, {before.memory} in the beginning"
    return ""


def _time_of_write(change: TimedChange, write: Change) -> float:
    match write:
        case Put(document=document):
            return change.time_of(document["kind"])
        case Remove(key=(kind, _, _)):
            return change.time_of(kind)
        case _:
            return change.at


async def play_schedule(
    schedule: Schedule,
    subjects: Sequence[Subject],
    mode: str,
    variant: Xtables,
    folder: Path,
) -> int:
    """Play a schedule and print its recording; returns the exit status: 0 also where the subject has failed.

    ``subjects``: the one that is judged, and its other version, if there is one. ``folder``: has the files that say where to end before its end, and to read the state (`kproxy.universes.stop`).
    """
    instance = Instance(schedule.case, schedule.family, 0, 0)
    began = time.monotonic_ns()
    lines: list[bytes] = []
    until = read_until(folder)

    def write(line: Line) -> None:
        lines.append(encode_line(line))

    try:
        async with open_universe(schedule, instance, subjects, mode, variant, write) as universe:
            try:
                began = time.monotonic_ns()
                await universe.play(until)
                if until < inf:
                    await universe.read_state(read_stop(folder).commands(universe.proxies.tools))
                else:
                    await universe.check_usage()
                    await universe.clean_up()
            finally:
                for node in NODES:
                    write(LogEnded(at=universe.now, node=node, text=universe.proxies.whole_log(node)))
    except (SubjectFailed, HarnessError, LabError) as reason:
        blamed = isinstance(reason, SubjectFailed)
        write(Failed(at=time.monotonic_ns() - began, subject=blamed, text=str(reason)))
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.buffer.flush()
    return 0


@asynccontextmanager
async def open_universe(
    schedule: Schedule,
    instance: Instance,
    subjects: Sequence[Subject],
    mode: str,
    variant: Xtables,
    write: Callable[[Line], None],
) -> AsyncIterator[Universe]:
    """Universe whose proxies have settled. Raises `SubjectFailed`, `HarnessError` and `LabError`."""
    os.mkdir(_FOLDER)  # noqa: PTH102 (pathlib is for code that may wait)
    async with open_lab() as lab, ApiServer() as server:
        proxies = Proxies(lab.network, subjects[0], mode, DEFAULT, variant, _FOLDER)
        proxies.other = subjects[-1]
        write_modprobe(proxies.tools)
        testbed = NetnsTestbed(lab, server, proxies)
        testbed.patience = PATIENCE
        testbed.serves([schedule.family])
        testbed.prepare([instance])
        await testbed.control()
        try:
            other = OtherProgram(lab.network, proxies.tools, schedule.family)
            for node in NODES:
                await other.install(node)
            before = {node: await list_objects(lab.network[node], proxies.tools) for node in NODES}
            await proxies.start_all(server)
            await testbed.settle()
            yield Universe(schedule, instance, lab, server, proxies, testbed, other, before, write)
        finally:
            await proxies.kill_all()
