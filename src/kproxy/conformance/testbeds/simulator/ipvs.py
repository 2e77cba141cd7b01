"""ipvs mode, simulated: virtual servers, members of ipsets, addresses and the text for ``iptables-restore``, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.simulator.walk import NodeView, Walked, walk_packet
from kproxy.linux.netfilter.node_state import IpvsRealServer, IpvsVirtualServer, TracedNode, VirtualKey
from kproxy.linux.netfilter.readers.ipset import read_ipset
from kproxy.linux.netfilter.restore import RestoredTables
from kproxy.model.network import Address, Family, Packet
from kproxy.proxy.backends.ipvs.compile import Context
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
    WriteInterimChains,
    full_delta,
    transaction,
)
from kproxy.proxy.backends.ipvs.kernel.chains import chain_blocks
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import Key, MarkKey, Ruleset, rule_text
from kproxy.proxy.backends.ipvs.static_rules import Options
from kproxy.proxy.plan import Plan


class IpvsState:
    """The first plan is written whole; of later ones what differs."""

    def __init__(self, family: Family, mark: int) -> None:
        """Nothing of ours."""
        self._family, self._options = family, Options(masquerade_mark=mark)
        self._tables = RestoredTables()
        self._held = KernelState()
        self._applied: DesiredState | None = None
        self._node = TracedNode()

    def apply(self, plan: Plan, addresses: frozenset[Address]) -> None:
        """Execute what the backend's diff gives."""
        allowed = plan.node_ports.addresses
        accepting = (a for a in addresses if not a.is_loopback and (allowed is None or a in allowed))
        context = Context(addresses, tuple(sorted(accepting, key=int)))
        before, desired = self._applied, desired_state(plan, context, self._options, self._applied)
        change = full_delta(self._held, desired) if before is None else delta(before, desired)
        for step in transaction(self._held, change, self._family).steps:
            self._execute(step)
        self._applied = desired
        sets = read_ipset("\n".join(self._ipset_lines()))
        self._node = TracedNode(
            tables=tuple(self._tables.netfilter_tables(self._family, sets)),
            virtual_servers={_key(key): self._virtual(key) for key in self._held.servers},
        )

    def walk(self, packet: Packet, view: NodeView) -> Sequence[Walked]:
        """Through tables and virtual servers; addresses on the device are the node's own."""
        addresses = view.addresses | self._held.addresses
        return walk_packet(replace(self._node, addresses=addresses, remembered=view.remembered), packet)

    def _execute(self, step: Step) -> None:
        """As strict as the kernel: nothing is made twice, nothing is removed that is not there."""
        match step:
            case ChangeMembers(_, removed, added):
                _refuse_if(not set(removed) <= self._held.members, step)
                replaced = {(m.set, m.element) for m in added}  # an element has one set of options
                kept = (m for m in self._held.members if (m.set, m.element) not in replaced)
                self._held.members = ({*kept} - set(removed)) | set(added)
            case ChangeAddresses(addresses, bind):
                _refuse_if(self._held.addresses.isdisjoint(addresses) is not bind, step)
                self._held.addresses ^= set(addresses)
            case WriteInterimChains(ruleset) | ReplaceChains(ruleset):
                self._tables = RestoredTables()
                self._tables.apply("".join(map(str, chain_blocks(ruleset))))
                self._tables.apply(_hook_text(ruleset))
            case SendCommands(commands):
                for command in commands:
                    self._send(command)

    def _send(self, command: IpvsCommand) -> None:
        servers, destinations = self._held.servers, self._held.destinations
        match command:
            case SetServer(key, server, new):
                _refuse_if((key not in servers) is not new, command)
                servers[key] = server
                destinations.setdefault(key, {})
            case RemoveServer(key):
                _refuse_if(key not in servers, command)
                del servers[key], destinations[key]
            case SetDestination(key, destination, weight, new):
                _refuse_if((destination not in destinations[key]) is not new, command)
                destinations[key][destination] = weight
            case RemoveDestination(key, destination):
                _refuse_if(destination not in destinations[key], command)
                del destinations[key][destination]

    def _ipset_lines(self) -> Iterator[str]:
        for which in IpSet:
            yield f"create {set_name(which, self._family)} {which.type.value}"
        for member in self._held.members:
            yield f"add {set_name(member.set, self._family)} {member.text}"

    def _virtual(self, key: Key) -> IpvsVirtualServer:
        server = self._held.servers[key]
        persistent = None if server.persistence is None else f"{server.persistence} s"
        real = tuple(
            IpvsRealServer(destination.address, destination.port, weight)
            for destination, weight in self._held.destinations[key].items()
        )
        return IpvsVirtualServer(server.scheduler, persistent, real)


def _key(key: Key) -> VirtualKey:
    return key.mark if isinstance(key, MarkKey) else (key.address, key.protocol.value.lower(), key.port)


def _hook_text(ruleset: Ruleset) -> str:
    """The jumps, as they are written where none stands yet."""
    return "".join(
        f"*{hook.table.value}\n-A {hook.chain} {rule_text(hook.rule)}\nCOMMIT\n" for hook in ruleset.hooks
    )


def _refuse_if(wrong: bool, what: object) -> None:  # noqa: FBT001 (reads as a sentence)
    if wrong:
        raise HarnessError(f"the kernel would refuse: {what}")
