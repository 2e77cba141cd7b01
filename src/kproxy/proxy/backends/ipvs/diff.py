"""Transactions of ipvs mode: steps from the kernel's state to the desired one, in an order that is safe at every step.

Theory of operation
-------------------
No two of the four things that ipvs mode writes can be changed together: virtual servers (netlink), members of ipsets, iptables
chains, and addresses of the device.  Every step is visible to packets.  Members are of two kinds.  *Guards* restrict what is
served: source ranges, masquerading, silence where a policy wants a local endpoint, shortcuts of the node.  *Admissions*
let packets in: the set of what is served, and the sets that exempt from masquerading.

Two rules decide the order.  A packet is never served without its guards; so guards come before what they guard, and go after it.
A packet is never refused between two states in which it is served; so what serves comes before what leads to it, and goes after::

    1. virtual servers of shortcuts        they are reached by a mark that no member sets yet
    2. members: guards added, admissions to what is served already, exemptions that end
    3. chains                              they refer to members, which are complete by now
    4. addresses that go                   packets to them are routed as if there were no proxy from here on
    5. members: admissions that end
    6. virtual servers and destinations
    7. members: guards that end, admissions to what has just become served, exemptions that begin
    8. addresses that come                 all behind them stands
    9. chains once more                    another mode's rules end
   10. idle shortcuts                      no member leads to them any more

The chains stand after the members they refer to: where another proxy's chains stood, what it served is never refused.
Steps 3 to 8 of a proxy that starts may follow another mode, whose rules serve until step 9.  Both modes have some chains in common, so
those hold the rules of both until then, and ours leave alone what the other mode serves.
Addresses are last on the way in and first on the way out because without the address a packet is routed as if there were no
proxy.  A destination with connections is not removed but gets weight 0 and drains (``Transaction.draining``).

One netlink message for each changed virtual server, destination or member, whatever the size of the cluster.  Pure.
`tests/unit/proxy/backends/ipvs/test_diff.py` holds each pair of the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import filterfalse

from kproxy.model.network import Address, Family
from kproxy.proxy.backends.ipvs.compile import DesiredVirtualServer, set_element
from kproxy.proxy.backends.ipvs.desired_state import Delta, DesiredState, SharedObject
from kproxy.proxy.backends.ipvs.names import UNMASQUERADED, IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import AddressKey, Destination, Key, MarkKey, Member, Ruleset, Server
from kproxy.proxy.backends.ipvs.static_rules import interim_ruleset


@dataclass(slots=True)
class KernelState:
    """Our objects in the kernel; the applier keeps it up to date as it executes steps.

    ``servers`` by key, the weight of each destination of each.
    """

    servers: MutableMapping[Key, Server] = field(default_factory=dict)
    destinations: MutableMapping[Key, dict[Destination, int]] = field(default_factory=dict)
    members: set[Member] = field(default_factory=set)
    addresses: set[Address] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SetServer:
    """Create a virtual server, or change its scheduling."""

    key: Key
    server: Server
    new: bool

    def __str__(self) -> str:
        how = f"{self.server.scheduler} flags {self.server.flags:#x}"
        lasting = f" persistent {self.server.persistence}" if self.server.persistence is not None else ""
        return f"{'add' if self.new else 'edit'} {self.key} {how}{lasting}"


@dataclass(frozen=True, slots=True)
class RemoveServer:
    """Remove a virtual server with all its destinations."""

    key: Key

    def __str__(self) -> str:
        return f"delete {self.key}"


@dataclass(frozen=True, slots=True)
class SetDestination:
    """Create a destination, or change its weight: with 0 it keeps its connections and gets no new ones."""

    key: Key
    destination: Destination
    weight: int
    new: bool

    def __str__(self) -> str:
        return f"{'add' if self.new else 'edit'} {self.key} -> {self.destination} weight {self.weight}"


@dataclass(frozen=True, slots=True)
class RemoveDestination:
    """Remove a destination; its connections are cut."""

    key: Key
    destination: Destination

    def __str__(self) -> str:
        return f"delete {self.key} -> {self.destination}"


IpvsCommand = SetServer | RemoveServer | SetDestination | RemoveDestination


@dataclass(frozen=True, slots=True)
class SendCommands:
    """Netlink messages to IPVS, in turn."""

    commands: tuple[IpvsCommand, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.commands))


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Changes of ipset members, removals first."""

    family: Family
    removed: tuple[Member, ...]
    added: tuple[Member, ...]

    def __str__(self) -> str:
        lines = [f"del {set_name(m.set, self.family)} {m.element}" for m in self.removed]
        lines += [f"add {set_name(m.set, self.family)} {m.text}" for m in self.added]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class ChangeAddresses:
    """Addresses on the device."""

    addresses: tuple[Address, ...]
    bind: bool

    def __str__(self) -> str:
        return "\n".join(f"{'bind' if self.bind else 'unbind'} {address}" for address in self.addresses)


@dataclass(frozen=True, slots=True)
class WriteInterimChains:
    """All chains and the jumps to them while another mode may serve: its rules in chains of both modes stay behind ours."""

    ruleset: Ruleset

    def __str__(self) -> str:
        return "chains of two modes"


@dataclass(frozen=True, slots=True)
class ReplaceChains:
    """Replacement of all chains; the jumps to them do not change."""

    ruleset: Ruleset

    def __str__(self) -> str:
        return "chains"


Step = SendCommands | ChangeMembers | WriteInterimChains | ReplaceChains | ChangeAddresses


@dataclass(frozen=True, slots=True)
class Transaction:
    """Steps in order.  ``draining``: virtual servers with destinations to remove when they have no connection left."""

    steps: tuple[Step, ...]
    draining: tuple[Key, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def full_delta(actual: KernelState, desired: DesiredState) -> Delta:
    """Difference that corrects everything: for a state just read from the kernel."""
    held: set[SharedObject] = {*actual.members, *actual.addresses}
    virtuals: dict[Key, DesiredVirtualServer | None] = {
        **dict.fromkeys(actual.servers),
        **desired.virtuals(),
    }
    needs = desired.needs
    return Delta(virtuals, tuple(needs - held), tuple(held - needs), desired.ruleset, whole=True)


def transaction(actual: KernelState, delta: Delta, family: Family) -> Transaction:
    """Steps from the kernel's state to the desired state of ``delta``."""
    planned = {key: _ServerCommands(key, actual, virtual) for key, virtual in delta.virtuals.items()}
    marks = [p for key, p in planned.items() if isinstance(key, MarkKey)]
    others = [p for key, p in planned.items() if not isinstance(key, MarkKey)]
    members = _sorted_members(actual, delta)
    rulesets = () if delta.ruleset is None else (delta.ruleset,)
    steps: Iterable[Step] = (
        SendCommands(tuple(order for p in marks for order in p.additions())),
        ChangeMembers(family, members.removed_first, members.added_first),
        *(WriteInterimChains(interim_ruleset(ruleset)) for ruleset in rulesets if delta.whole),
        *(ReplaceChains(ruleset) for ruleset in rulesets if not delta.whole),
        ChangeAddresses(tuple(use for use in delta.unneeded if not isinstance(use, Member)), bind=False),
        ChangeMembers(family, members.revoked, ()),
        SendCommands(tuple(order for p in others for order in (*p.additions(), *p.removals()))),
        ChangeMembers(family, members.removed_last, members.added_last),
        ChangeAddresses(tuple(use for use in delta.needed if not isinstance(use, Member)), bind=True),
        *(ReplaceChains(ruleset) for ruleset in rulesets if delta.whole),
        SendCommands(tuple(order for p in marks for order in p.removals())),
    )
    draining = tuple(key for key, p in planned.items() if p.draining())
    return Transaction(tuple(step for step in steps if not _empty(step)), draining)


class _ServerCommands:
    """Commands for one virtual server: additions, and removals."""

    def __init__(self, key: Key, picture: KernelState, wanted: DesiredVirtualServer | None) -> None:
        self._key, self._wanted = key, wanted
        self._server = picture.servers.get(key)
        self._there: Mapping[Destination, int] = picture.destinations.get(key, {})

    def additions(self) -> Iterator[IpvsCommand]:
        wanted = self._wanted
        if wanted is None or (self._server is None and not (wanted.destinations or wanted.created_empty)):
            return
        if self._server != wanted.server:
            yield SetServer(self._key, wanted.server, new=self._server is None)
        for destination in sorted(wanted.destinations, key=_rank):
            weight = self._there.get(destination)
            if weight != 1:
                yield SetDestination(self._key, destination, 1, new=weight is None)

    def removals(self) -> Iterator[IpvsCommand]:
        if self._wanted is None:
            if self._server is not None:
                yield RemoveServer(self._key)
            return
        for destination, weight in sorted(self._there.items(), key=lambda item: _rank(item[0])):
            if destination in self._wanted.destinations:
                continue
            if not self._keeps(destination):
                yield RemoveDestination(self._key, destination)
            elif weight != 0:
                yield SetDestination(self._key, destination, 0, new=False)

    def draining(self) -> bool:
        wanted = self._wanted
        return wanted is not None and wanted.drain and not self._there.keys() <= wanted.destinations

    def _keeps(self, destination: Destination) -> bool:
        wanted = self._wanted
        return wanted is not None and (wanted.drain or destination in wanted.keep_established)


@dataclass(frozen=True, slots=True)
class _SortedMembers:
    removed_first: tuple[Member, ...]
    added_first: tuple[Member, ...]
    revoked: tuple[Member, ...]
    removed_last: tuple[Member, ...]
    added_last: tuple[Member, ...]


def _sorted_members(picture: KernelState, delta: Delta) -> _SortedMembers:
    """Member changes by step, in the order of the theory of operation.

    Guards are added before the virtual servers change and removed after; admissions and exemptions are added after and
    removed before.  Admissions to a virtual server that exists already are added before too.  A member that differs from
    a removed one in its options only replaces it.
    """
    needed = [use for use in delta.needed if isinstance(use, Member)]
    replaced = {(member.set, member.element) for member in needed}
    unneeded = [
        use for use in delta.unneeded if isinstance(use, Member) and (use.set, use.element) not in replaced
    ]
    going = set(unneeded)
    fresh = {
        set_element(key)
        for key in delta.virtuals
        if key not in picture.servers and isinstance(key, AddressKey)
    }

    def arrives_late(member: Member) -> bool:
        if member.set in UNMASQUERADED:
            return _unmasqueraded_twin(member) in picture.members
        return member.set is IpSet.SERVED and member.element in fresh

    def leaves_early(member: Member) -> bool:
        if member.set not in UNMASQUERADED:
            return False
        return (twin := _unmasqueraded_twin(member)) in picture.members and twin not in going

    def leaves_late(member: Member) -> bool:
        return member.set is not IpSet.SERVED and not leaves_early(member)

    return _SortedMembers(
        _ordered(filter(leaves_early, unneeded)),
        _ordered(filterfalse(arrives_late, needed)),
        _ordered(member for member in unneeded if member.set is IpSet.SERVED),
        _ordered(filter(leaves_late, unneeded), backwards=True),
        _ordered(filter(arrives_late, needed)),
    )


_RANK = {which: rank for rank, which in enumerate(IpSet)}
_RANK[IpSet.LOAD_BALANCER_FIREWALL] = len(IpSet)


def _unmasqueraded_twin(member: Member) -> Member:
    return Member(UNMASQUERADED[member.set], member.text)


def _ordered(members: Iterable[Member], *, backwards: bool = False) -> tuple[Member, ...]:
    """Members in order of addition: a firewall after the source ranges that it admits."""
    return tuple(sorted(members, key=lambda m: (_RANK[m.set], m.text), reverse=backwards))


def _rank(destination: Destination) -> tuple[int, int]:
    return int(destination.address), destination.port


def _empty(step: Step) -> bool:
    match step:
        case SendCommands(orders):
            return not orders
        case ChangeMembers(_, removed, added):
            return not removed and not added
        case ChangeAddresses(addresses):
            return not addresses
        case WriteInterimChains() | ReplaceChains():
            return False
