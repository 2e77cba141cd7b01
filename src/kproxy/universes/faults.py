"""Faults of a universe, each as a context manager: it holds while the block runs.

Part of what plays a universe, inside its guest: it touches proxies, API server and kernel, judges nothing, and knows nothing of the
schedule but the one fault.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path

from kproxy.conformance.testbeds.proxies import Proxies
from kproxy.lab.apiserver import ApiServer
from kproxy.lab.apiserver.faults import Refuse, SlowStream, StallRequests
from kproxy.lab.apiserver.resources import ALL_KINDS, ResourceKind
from kproxy.lab.apiserver.routes import Verb
from kproxy.lab.faults.link import link_down
from kproxy.lab.network import Network
from kproxy.universes.other_program import OtherProgram
from kproxy.universes.schedule import OF_MACHINE, OF_NODE, FaultKind, TimedFault

MOST_FAULTS = 100
"""So many numbers follow each seed, one for each fault."""
_MOST_CONNECTIONS = Path("/proc/sys/net/netfilter/nf_conntrack_max")
_READS = frozenset({Verb.LIST, Verb.WATCH})


@dataclass(frozen=True, slots=True)
class UniverseFaults:
    """Faults of a running universe; ``seed``: the universe's."""

    seed: int
    server: ApiServer
    network: Network
    proxies: Proxies
    other_program: OtherProgram

    @asynccontextmanager
    async def during(self, number: int, fault: TimedFault) -> AsyncIterator[None]:
        """Have a fault, the schedule's of that number."""
        if fault.kind in OF_NODE:
            async with self._of_node(fault, self.seed * MOST_FAULTS + number):
                yield
        elif fault.kind is FaultKind.XTABLES_LOCKED:
            async with locked(self.proxies.xtables_locks):
                yield
        else:
            of = self._of_machine if fault.kind in OF_MACHINE else self._of_api_server
            with of(fault):
                yield

    def _of_node(self, fault: TimedFault, seed: int) -> AbstractAsyncContextManager[None]:
        match fault.kind:
            case FaultKind.LINK_DOWN:
                return link_down(self.network[fault.node])
            case FaultKind.RULES_RELOADED:
                return self._rules_reloaded(fault)
            case FaultKind.RULES_LOST:
                return self._rules_lost(fault)
            case (
                FaultKind.PROXY_KILLED
                | FaultKind.MODE_CHANGED
                | FaultKind.PROXY_REPLACED
                | FaultKind.PROXY_STOPPED
            ):
                return self._proxy_away(fault)
            case _:
                return self._calls_disturbed(fault, seed)

    @asynccontextmanager
    async def _rules_reloaded(self, fault: TimedFault) -> AsyncIterator[None]:
        reloading = asyncio.create_task(self.other_program.reload_again_and_again(fault.node, fault.pause))
        yield
        reloading.cancel()
        with suppress(asyncio.CancelledError):
            await reloading

    @asynccontextmanager
    async def _rules_lost(self, fault: TimedFault) -> AsyncIterator[None]:
        await self.other_program.load_in_place_of_all(fault.node)
        yield

    @asynccontextmanager
    async def _proxy_away(self, fault: TimedFault) -> AsyncIterator[None]:
        """A proxy that is stopped, or killed, or replaced by one in another mode or of another version."""
        match fault.kind:
            case FaultKind.PROXY_STOPPED:
                self.proxies.stop(fault.node)
                yield
                self.proxies.resume(fault.node)
            case FaultKind.PROXY_KILLED:
                await self.proxies.kill(fault.node)
                yield
                self.proxies.start(fault.node)
            case FaultKind.PROXY_REPLACED:
                await self.proxies.replace_by_other(fault.node)
                yield
            case _:
                await self.proxies.restart_in_other_mode(fault.node)
                yield
                await self.proxies.kill(fault.node)
                self.proxies.start(fault.node)

    @asynccontextmanager
    async def _calls_disturbed(self, fault: TimedFault, seed: int) -> AsyncIterator[None]:
        """A proxy whose system calls are refused, slow or held, from its start on where it is restarted; it may be killed in one."""
        match fault.kind:
            case FaultKind.WRITES_REFUSED:
                await self.proxies.refuse_writes(fault.node, seconds=fault.pause)
            case FaultKind.MEMORY_SHORT:
                await self.proxies.make_memory_short(fault.node, fault.pause, seed)
            case FaultKind.WRITES_SLOW | FaultKind.PROXY_CRASHED:
                await self.proxies.delay_writes(fault.node, fault.pause, reads=True)
            case FaultKind.PROXY_RESTARTED:
                await self.proxies.kill(fault.node)
                self.proxies.start(fault.node)
                await self.proxies.hold_threads(fault.node, fault.pause, seed)
            case _:
                await self.proxies.hold_threads(fault.node, fault.pause, seed)
        yield
        if fault.kind is FaultKind.PROXY_CRASHED:  # before its writes can go on
            await self.proxies.kill(fault.node)
        await self.proxies.take_writes(fault.node)
        if fault.kind is FaultKind.PROXY_CRASHED:
            self.proxies.start(fault.node)

    def _of_machine(self, fault: TimedFault) -> AbstractContextManager[None]:
        if fault.kind is FaultKind.CONNTRACK_FULL:
            return conntrack_full()
        return clock_set_forward(fault.pause)

    def _of_api_server(self, fault: TimedFault) -> AbstractContextManager[None]:
        faults, kinds = self.server.faults, _kinds(fault)
        match fault.kind:
            case FaultKind.WATCHES_STALL:
                return faults.during(StallRequests(verbs=frozenset({Verb.WATCH}), kinds=kinds))
            case FaultKind.EVENTS_TRICKLE:
                return faults.during(SlowStream(seconds=fault.pause, kinds=kinds))
            case FaultKind.LISTS_STALL:
                self.server.drop_watches(kinds, reset=True)
                return faults.during(StallRequests(kinds=kinds))
            case FaultKind.WATCHES_RESET:
                self.server.drop_watches(kinds, reset=True)
                return nullcontext()
            case FaultKind.LISTS_CUT:
                return self._cut_lists(kinds, fault.pause)
            case _:
                self.server.drop_watches(kinds, reset=True)
                return self._without_reads(kinds, forget=fault.kind is FaultKind.HISTORY_GONE)

    @contextmanager
    def _without_reads(self, kinds: frozenset[ResourceKind], *, forget: bool) -> Iterator[None]:
        with self.server.faults.during(Refuse(verbs=_READS, kinds=kinds)):
            yield
            if forget:
                self.server.store.compact()

    @contextmanager
    def _cut_lists(self, kinds: frozenset[ResourceKind], pause: float) -> Iterator[None]:
        self.server.drop_watches(kinds, reset=True)
        self.server.store.compact()
        with self.server.faults.during(SlowStream(seconds=pause, kinds=kinds)):
            yield
            self.server.drop_watches(kinds, reset=True)


def _kinds(fault: TimedFault) -> frozenset[ResourceKind]:
    return ALL_KINDS if fault.resource is None else frozenset({ResourceKind(fault.resource.value)})


@asynccontextmanager
async def locked(paths: Iterable[Path]) -> AsyncIterator[None]:
    """Locks of the iptables tools, held by us once those that came before have given them back (iptables-legacy alone takes them)."""
    with ExitStack() as stack:
        for path in paths:
            await asyncio.to_thread(fcntl.flock, stack.enter_context(path.open("w")), fcntl.LOCK_EX)
        yield


@contextmanager
def conntrack_full() -> Iterator[None]:
    """Limit of connections, which each network namespace has for itself, at what none stays below."""
    before = _MOST_CONNECTIONS.read_text()
    _MOST_CONNECTIONS.write_text("1\n")
    try:
        yield
    finally:
        _MOST_CONNECTIONS.write_text(before)


@contextmanager
def clock_set_forward(seconds: float) -> Iterator[None]:
    """Wall clock of the guest that is so many seconds ahead, back afterwards."""
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - seconds)
