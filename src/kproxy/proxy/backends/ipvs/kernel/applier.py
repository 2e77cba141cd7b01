"""Applies plans to one family's IPVS, ipsets, chains and device, as a difference to the cached state of the kernel.

After any failure the cache is discarded, and the next `IpvsKernel.apply` reads it from the kernel again and corrects
all that differs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

from kproxy.linux.conntrack import invalid_drops
from kproxy.linux.node_addresses import AddressMonitor, list_addresses
from kproxy.model.network import (
    Address,
    Family,
    Network,
    Protocol,
    family_of,
    format_address,
    parse_network,
)
from kproxy.proxy.backends import Applied
from kproxy.proxy.backends.ipvs.compile import Context, set_element
from kproxy.proxy.backends.ipvs.desired_state import DesiredState, delta, desired_state
from kproxy.proxy.backends.ipvs.diff import (
    ChangeAddresses,
    ChangeMembers,
    IpvsCommand,
    KernelState,
    RemoveDestination,
    RemoveServer,
    ReplaceChains,
    SendCommands,
    SetDestination,
    SetServer,
    Step,
    Transaction,
    WriteInterimChains,
    full_delta,
    transaction,
)
from kproxy.proxy.backends.ipvs.kernel import device, ipsets, machine
from kproxy.proxy.backends.ipvs.kernel.chains import IptablesChains
from kproxy.proxy.backends.ipvs.kernel.ipvs_socket import Ipvs
from kproxy.proxy.backends.ipvs.names import DEVICE, IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import AddressKey, Key, MarkKey, Member
from kproxy.proxy.backends.ipvs.static_rules import Options, mark_masks
from kproxy.proxy.backends.xtables.kernel.tools import find_tools
from kproxy.proxy.backends.xtables.kernel.unchanged import UnchangedTables, state_reader
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.plan import Plan

DESTINATIONS_SECONDS = 0.02
"""Time in seconds for which one check lists the destinations of virtual servers."""

_FRONTENDS = (IpSet.CLUSTER_IP, IpSet.EXTERNAL_IP, IpSet.EXTERNAL_IP_LOCAL, IpSet.LOAD_BALANCER)
"""Each frontend with an address is in one of these sets before its virtual server comes, and until after it went."""

_NODE_PORTS = {
    Protocol.TCP: IpSet.NODE_PORT_TCP,
    Protocol.UDP: IpSet.NODE_PORT_UDP,
    Protocol.SCTP: IpSet.NODE_PORT_SCTP,
}


@dataclass(frozen=True, slots=True)
class IpvsSettings:
    """The ipvs section, and the masquerade bit; timeouts in seconds, 0 to leave them."""

    masquerade_bit: int = 14
    scheduler: str = "rr"
    excluded: tuple[Network, ...] = ()
    strict_arp: bool = False
    tcp_timeout: int = 0
    tcp_fin_timeout: int = 0
    udp_timeout: int = 0


def ipvs_settings(config: Configuration, family: Family) -> IpvsSettings:
    """The settings of one family; the masquerade bit is that of the iptables section (``cfg.mode-sections``)."""
    section = config.ipvs
    excluded = (parse_network(text) for text in section.exclude_cidrs)
    return IpvsSettings(
        masquerade_bit=config.iptables.masquerade_bit,
        scheduler=section.scheduler or "rr",
        excluded=tuple(n for n in excluded if n is not None and family_of(n) is family),
        strict_arp=section.strict_arp,
        tcp_timeout=int(section.tcp_timeout.seconds),
        tcp_fin_timeout=int(section.tcp_fin_timeout.seconds),
        udp_timeout=int(section.udp_timeout.seconds),
    )


class IpvsKernel:
    """One family's ipvs mode in the network namespace this runs in."""

    def __init__(self, family: Family, configuration: IpvsSettings) -> None:
        """Check the kernel and set it up; raises `HostError` if it cannot serve."""
        self._family, self._configuration = family, configuration
        tools = find_tools(family)
        self._chains = IptablesChains(tools)
        self._unchanged = UnchangedTables(state_reader(tools))
        check_kernel(family, configuration.scheduler)
        self._ipvs = Ipvs()
        self._sticky_scheduler = machine.sticky_scheduler(self._ipvs, family)
        self._options = machine.machine_options(configuration.masquerade_bit, random_fully=tools.random_fully)
        times = configuration.tcp_timeout, configuration.tcp_fin_timeout, configuration.udp_timeout
        if any(times):
            self._ipvs.configure(*times)
        self._latest: DesiredState | None = None
        self._last_applied: DesiredState | None = None
        self._actual = KernelState()
        self._addresses = AddressMonitor(family, DEVICE)
        self._node_addresses: frozenset[Address] = frozenset()
        self._draining: dict[Key, None] = {}
        self._without_room: dict[Member, None] = {}
        self._looked = 0

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan; raises `HostError`, and the next call then reads the kernel's state again."""
        started, sent = time.monotonic(), self._ipvs.sent
        believed, self._last_applied = self._last_applied, None
        if believed is None:
            self._prepare()
        self._node_addresses = frozenset(self._addresses.current())
        desired = self._latest = desired_state(plan, self._context(plan), self._options, self._latest)
        if believed is None:
            self._actual = self._read(desired)
        change = full_delta(self._actual, desired) if believed is None else delta(believed, desired)
        todo = transaction(self._actual, change, self._family)
        for step in todo.steps:
            self._execute(step)
        self._fill_sets(todo)
        self._draining |= dict.fromkeys(todo.draining)
        self._remove_drained(todo.draining)
        self._last_applied = desired
        done = _applied(believed is None, todo, self._ipvs.sent - sent, time.monotonic() - started)
        return replace(done, problems=self._full_sets())

    def close(self) -> None:
        """Close the socket; no other method may be called afterwards."""
        self._ipvs.close()

    def notifiers(self) -> tuple[int, ...]:
        """None: looks are always thorough."""
        return ()

    def refresh_options(self) -> bool:
        """Read the options that depend on this machine again; True if they changed, then the chains must be written again."""
        known, self._options = self._options, replace(self._options, drop_invalid_input=invalid_drops().input)
        return self._options != known

    def forget(self) -> None:
        """Discard the cached state: the next `apply` reads it from the kernel and corrects what differs."""
        self._last_applied = None

    def find_drift(self, *, thorough: bool = True) -> tuple[str, ...]:
        """Objects removed by other processes, and new node addresses, since the last `apply`; empty before it.

        Each call checks the destinations of as many virtual servers as `DESTINATIONS_SECONDS` allows, in turn, and
        removes drained destinations (``ipvs.graceful``).
        """
        if self._last_applied is None or not thorough:
            return ()
        self._remove_drained(tuple(self._draining))
        node, bound = self._addresses.current(), self._addresses.on_device()
        names = ipsets.list_set_names()
        return (
            *self._unchanged.missing(self._missing_hooks),
            *(f"ipset {name}" for s in IpSet if (name := set_name(s, self._family)) not in names),
            *(f"address {a} of {DEVICE}" for a in self._actual.addresses ^ bound),
            *(f"node address {address}" for address in self._node_addresses.symmetric_difference(node)),
            *(f"virtual server {key}" for key in self._changed_servers()),
            *self._missing_destinations(),
        )

    def _changed_servers(self) -> list[Key]:
        """Virtual servers that are not as they were applied, in two lists in a row.

        A list that Linux takes while others change, the other family's for instance, may lack one (ip_vs_ctl.c: ip_vs_genl_dump_services).
        """
        changed = list(self._actual.servers)
        for _ in range(2):
            there = {found.key: found.server for found in self._ipvs.servers(self._family)} if changed else {}
            changed = [key for key in changed if there.get(key) != self._actual.servers[key]]
        return changed

    def _missing_hooks(self) -> tuple[str, ...]:
        hooks = self._last_applied.ruleset.hooks if self._last_applied else ()
        return tuple(f"hook {hook.chain}: {hook.rule}" for hook in self._chains.missing_hooks(hooks))

    # ------------------------------------------------------------------ reading

    def _prepare(self) -> None:
        self._without_room.clear()
        device.create_device()
        machine.set_sysctls(strict_arp=self._configuration.strict_arp)
        ipsets.create_missing_sets(self._family)

    def _context(self, plan: Plan) -> Context:
        """Common input of service ports; node ports are neither on loopback nor on link-local addresses (``ds.v6-specials``)."""
        allowed = plan.node_ports.addresses
        accepting = (
            address
            for address in self._node_addresses
            if not (address.is_loopback or address.is_link_local) and (allowed is None or address in allowed)
        )
        scheduler = self._configuration.scheduler
        return Context(
            self._node_addresses, tuple(sorted(accepting, key=int)), scheduler, self._sticky_scheduler
        )

    def _read(self, desired: DesiredState) -> KernelState:
        """Our objects in the kernel, and those with the keys of desired ones, read now."""
        members = ipsets.read_members(self._family)
        bound = list_addresses(self._family, DEVICE).device
        wanted = desired.virtuals().keys()
        taken = bound | device.routed_addresses(self._family)
        mine = Ownership(members, taken, self._node_addresses, self._options, self._configuration.excluded)
        found = {
            f.key: f.server for f in self._ipvs.servers(self._family) if f.key in wanted or mine.has(f.key)
        }
        destinations = {
            key: {d.destination: d.weight for d in self._ipvs.destinations(key, self._family)}
            for key in found
        }
        return KernelState(found, destinations, members, set(bound))

    def _missing_destinations(self) -> Iterable[str]:
        keys = list(self._actual.servers)
        start = self._looked if self._looked < len(keys) else 0
        until = time.monotonic() + DESTINATIONS_SECONDS
        for self._looked, key in enumerate(islice(keys, start, None), start + 1):
            there = {d.destination: d.weight for d in self._ipvs.destinations(key, self._family)}
            if there != self._actual.destinations.get(key, {}):
                yield f"destinations of {key}"
            if time.monotonic() > until:
                return

    # ------------------------------------------------------------------ writing

    def _execute(self, step: Step) -> None:
        match step:
            case SendCommands(orders):
                self._send(orders)
            case ChangeMembers():
                self._change_members(step)
            case WriteInterimChains(ruleset):
                self._chains.write_interim(ruleset)
            case ReplaceChains(ruleset):
                self._chains.replace(ruleset)
            case ChangeAddresses(addresses, bind=True):
                device.add_addresses(addresses)
                self._actual.addresses.update(addresses)
            case ChangeAddresses(addresses):
                device.remove_addresses(addresses)
                self._actual.addresses.difference_update(addresses)

    def _change_members(self, step: ChangeMembers) -> None:
        without_room = dict.fromkeys(ipsets.change_members(step))
        for member in (*step.removed, *step.added):
            self._without_room.pop(member, None)
        self._without_room |= without_room
        self._actual.members.difference_update(step.removed)
        self._actual.members.update(member for member in step.added if member not in without_room)

    def _fill_sets(self, done: Transaction) -> None:
        """Add members for which there was no room before: as many as a transaction has removed from their sets."""
        if not self._without_room:
            return
        removed = [m.set for step in done.steps if isinstance(step, ChangeMembers) for m in step.removed]
        added = [
            member
            for which, number in Counter(removed).items()
            for member in islice((m for m in self._without_room if m.set is which), number)
        ]
        if added:
            self._change_members(ChangeMembers(self._family, (), tuple(added)))

    def _full_sets(self) -> tuple[str, ...]:
        names = sorted(set_name(which, self._family) for which in {m.set for m in self._without_room})
        return tuple(f"ipset {name} is full: some of its members are left out" for name in names)

    def _send(self, orders: tuple[IpvsCommand, ...]) -> None:
        self._ipvs.send(orders, self._family)
        for order in orders:
            _record_command(self._actual, order)

    def _remove_drained(self, keys: Iterable[Key]) -> None:
        """Remove destinations of weight 0 that have no connection left."""
        for key in keys:
            held = self._actual.destinations.get(key, {})
            if not any(weight == 0 for weight in held.values()):
                self._draining.pop(key, None)
                continue
            idle = [
                found.destination
                for found in self._ipvs.destinations(key, self._family)
                if found.weight == 0 and not found.connections and held.get(found.destination) == 0
            ]
            if idle:
                self._send(tuple(RemoveDestination(key, destination) for destination in idle))


class Ownership:
    """Ownership of the kernel's virtual servers: left by an earlier run of this proxy or of kube-proxy, or by a sync that failed.

    Ours are those on addresses of our device (``bound``), those whose address and port are in our sets, those on node addresses at
    ports that our sets have as node ports, and those by a mark like ours; never one inside ``excluded`` (``ipvs.exclude``). The
    sets matter where the address is not on the device: it is the node's own, or a sync has removed it and got no further.
    """

    def __init__(
        self,
        members: Iterable[Member],
        bound: frozenset[Address],
        node_addresses: frozenset[Address],
        options: Options,
        excluded: tuple[Network, ...],
    ) -> None:
        self._members, self._bound, self._node_addresses = frozenset(members), bound, node_addresses
        self._prefix, self._mask = mark_masks(options)
        self._excluded = excluded

    def has(self, key: Key) -> bool:
        """True if the virtual server is ours."""
        if isinstance(key, MarkKey):
            return key.mark & self._mask == self._prefix
        if any(key.address in network for network in self._excluded):
            return False
        return key.address in self._bound or self._is_frontend(key) or self._is_node_port(key)

    def _is_frontend(self, key: AddressKey) -> bool:
        return any(Member(which, set_element(key)) in self._members for which in _FRONTENDS)

    def _is_node_port(self, key: AddressKey) -> bool:
        port = (
            f"{format_address(key.address)},sctp:{key.port}"
            if key.protocol is Protocol.SCTP
            else str(key.port)
        )
        return (
            key.address in self._node_addresses and Member(_NODE_PORTS[key.protocol], port) in self._members
        )


def _record_command(picture: KernelState, order: IpvsCommand) -> None:
    match order:
        case SetServer(key, server):
            picture.servers[key] = server
            picture.destinations.setdefault(key, {})
        case RemoveServer(key):
            picture.servers.pop(key, None)
            picture.destinations.pop(key, None)
        case SetDestination(key, destination, weight):
            picture.destinations[key][destination] = weight
        case RemoveDestination(key, destination):
            picture.destinations[key].pop(destination, None)


def _applied(rewritten: bool, done: Transaction, messages: int, seconds: float) -> Applied:  # noqa: FBT001
    members = sum(len(s.added) + len(s.removed) for s in done.steps if isinstance(s, ChangeMembers))
    addresses = sum(len(s.addresses) for s in done.steps if isinstance(s, ChangeAddresses))
    changes = {"messages to IPVS": messages, "set members": members, "addresses": addresses}
    return Applied(rewritten, changes, seconds=seconds)


def prepare_ipvs(config: Configuration) -> None:
    """Load the scheduler and set sysctls; raises `HostError` if ipvs mode cannot work."""
    check_kernel(Family.IPV4, config.ipvs.scheduler or "rr")
    machine.set_sysctls(strict_arp=config.ipvs.strict_arp)


def check_kernel(family: Family, scheduler: str) -> None:
    """Raise `HostError` if ipvs mode cannot work on this machine."""
    find_tools(family)
    with Ipvs() as ipvs:
        machine.check_scheduler(ipvs, scheduler, family)
