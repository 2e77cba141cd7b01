"""The kernel's state in memory, after transactions of ipvs mode."""

from __future__ import annotations

from ipaddress import ip_address

from kproxy.proxy.backends.ipvs.compile import Context, DesiredVirtualServer
from kproxy.proxy.backends.ipvs.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.ipvs.diff import (
    ChangeAddresses,
    ChangeMembers,
    KernelState,
    RemoveDestination,
    RemoveServer,
    ReplaceChains,
    SendCommands,
    SetDestination,
    SetServer,
    Transaction,
    WriteInterimChains,
)
from kproxy.proxy.backends.ipvs.static_rules import Options
from kproxy.proxy.plan import Plan


def node_with(*addresses: str) -> Context:
    own = tuple(map(ip_address, addresses))
    return Context(frozenset(own), own)


CONTEXT = node_with("192.0.2.1")


def programmed(plan: Plan, before: DesiredState | None = None, context: Context = CONTEXT) -> DesiredState:
    return desired_state(plan, context, Options(), before)


def execute(picture: KernelState, todo: Transaction) -> None:
    """The kernel, as strict as it is: nothing is made twice, nothing is removed that is not there."""
    for step in todo.steps:
        match step:
            case ChangeMembers(_, removed, added):
                assert set(removed) <= picture.members
                picture.members = (picture.members - set(removed)) | set(added)
            case ChangeAddresses(addresses, bind):
                assert picture.addresses.isdisjoint(addresses) is bind
                picture.addresses ^= set(addresses)
            case WriteInterimChains() | ReplaceChains():
                pass
            case SendCommands(orders):
                for order in orders:
                    obey(picture, order)


def obey(picture: KernelState, order: SetServer | RemoveServer | SetDestination | RemoveDestination) -> None:
    match order:
        case SetServer(key, server, new):
            assert (key not in picture.servers) is new
            picture.servers[key] = server
            picture.destinations.setdefault(key, {})
        case RemoveServer(key):
            del picture.servers[key], picture.destinations[key]
        case SetDestination(key, destination, weight, new):
            assert (destination not in picture.destinations[key]) is new
            picture.destinations[key][destination] = weight
        case RemoveDestination(key, destination):
            del picture.destinations[key][destination]


def is_optional(virtual: DesiredVirtualServer) -> bool:
    return not (virtual.destinations or virtual.created_empty)


def agrees(picture: KernelState, desired: DesiredState) -> bool:
    """The kernel is as wanted, but for destinations that drain, and virtual servers that nothing leads to and may be there or not."""
    wanted = {
        key: virtual
        for key, virtual in desired.virtuals().items()
        if key in picture.servers or not is_optional(virtual)
    }
    chosen = {key: {d for d, weight in held.items() if weight} for key, held in picture.destinations.items()}
    return (
        picture.servers == {key: virtual.server for key, virtual in wanted.items()}
        and chosen == {key: set(virtual.destinations) for key, virtual in wanted.items()}
        and {*picture.members, *picture.addresses} == desired.needs
    )
