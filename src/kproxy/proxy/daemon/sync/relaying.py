"""Dataplanes of modes with a relay: a mode's own, with sockets at 127.0.0.1 beside it, or with sockets for everything.

Between `kproxy.proxy.daemon.sync.dataplane` and `kproxy.proxy.relay`; knows no mode by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol as Interface

from kproxy.linux.host import HostError, Reason
from kproxy.linux.node_addresses import source_address
from kproxy.model.network import Address, Family
from kproxy.proxy.backends import Applied, Dataplane, WrappedDataplane
from kproxy.proxy.plan import Plan
from kproxy.proxy.relay.fleet import end_flows_to
from kproxy.proxy.relay.portals import Portals
from kproxy.proxy.relay.queries import answer_queries
from kproxy.proxy.relay.relay import LocalRelay
from kproxy.proxy.relay.table import RelayKey, RelayPort, loopback_node_ports
from kproxy.proxy.relay.wire import Counted
from kproxy.proxy.relay.workers import WorkerRelay


class FamilyRelay(Interface):
    """The relay of one family: in this process, or in workers that outlive it."""

    def numbers(self) -> Mapping[RelayKey, int]:
        """The number of each port that is open, those that an earlier daemon opened too."""

    def open_missing(self, ports: Iterable[RelayPort]) -> Mapping[RelayKey, int]:
        """Open those ports that are not open; returns the number of each that is."""

    def update(self, ports: Iterable[RelayPort]) -> None:
        """Serve exactly these ports from now on, but those that cannot be opened."""

    def count(self) -> Counted:
        """Counts of events, and of open connections."""


_relays: dict[Family, FamilyRelay] = {}


def running_relay(family: Family) -> FamilyRelay:
    """The relay in this process for a family, started at the first call."""
    if family not in _relays:
        relay = _relays[family] = LocalRelay()
        relay.start()
        answer_queries(relay)
    return _relays[family]


def worker_relay(family: Family, workers: int, *, keep_sources: bool) -> FamilyRelay:
    """The relay in workers for a family (`WorkerRelay`); those are found or started when it has something to serve."""
    if family not in _relays:
        _relays[family] = WorkerRelay(family, workers, keep_sources=keep_sources)
    return _relays[family]


def running_relays() -> Mapping[Family, FamilyRelay]:
    """The relays of this daemon."""
    return _relays


class RelayingDataplane(WrappedDataplane):
    """A dataplane, and the relay's ports for each plan that it applied."""

    def __init__(self, plane: Dataplane, relay: FamilyRelay) -> None:
        super().__init__(plane)
        self._relay = relay

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan, rules first: clients at loopback are the node's own, and wait for no rule.

        A port that a daemon of the node has taken is logged and no failure: the rules of all Services stand.
        """
        written = self._plane.apply(plan)
        self._relay.update(loopback_node_ports(plan))
        return written


class PortalDataplane(WrappedDataplane):
    """A dataplane whose rules send packets to the relay, which has sockets for each pool of a service port.

    The sockets are open before rules lead to them, and closed when none does any more.  All are bound to one address of the node.
    UDP flows that come to a socket end with it, whatever address they were sent to: of what an earlier daemon served nothing is known
    but the sockets that it left open.
    """

    def __init__(
        self,
        plane: Dataplane,
        relay: FamilyRelay,
        portals: Portals,
        addresses: Callable[[], Iterable[Address]],
    ) -> None:
        super().__init__(plane)
        self._relay, self._portals, self._addresses = relay, portals, addresses
        self._address: Address | None = None
        self._open: Mapping[RelayKey, int] | None = None
        """Sockets that rules may lead to; None: those that an earlier daemon left open."""

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan; a socket that cannot be opened costs no other Service its own.

        Endpoints change once the rules are written: while the kernel refuses, all stays as it was (``writes.refused.rules-kept``).
        """
        node = tuple(self._addresses())
        if self._open is None:
            self._open = dict(self._relay.numbers())
            self._portals.adopt(self._open)
        address = self._address = self._choose_address(plan.family, node)
        ports = self._portals.ports(plan, address, frozenset(node))
        numbers = self._relay.open_missing(ports)
        self._open = {**self._open, **numbers}
        relayed = self._portals.relayed(plan, address, numbers)
        written = self._plane.apply(relayed)
        self._relay.update(ports)
        wanted = {port.key for port in ports}
        end_flows_to(plan.family, {key: at for key, at in self._open.items() if key not in wanted})
        self._open = numbers
        return replace(written, tracked=relayed)

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        """Changes of the rules by others, and the loss of the address that the sockets are bound to."""
        lost = self._address is not None and self._address not in self._addresses()
        return (*self._plane.find_drift(thorough=thorough), *((f"address {self._address}",) if lost else ()))

    def _choose_address(self, family: Family, node: Iterable[Address]) -> Address:
        """The address chosen before, as long as the node has it; else the one it would send from, or any."""
        usable = [one for one in node if not (one.is_loopback or one.is_link_local)]
        if self._address in usable and self._address is not None:
            return self._address
        preferred = source_address(family)
        if preferred in usable and preferred is not None:
            return preferred
        if not usable:
            text = f"this node has no {family.value} address that packets could be sent to"
            raise HostError("choose an address for the relay", text, Reason.MISSING)
        return min(usable, key=int)
