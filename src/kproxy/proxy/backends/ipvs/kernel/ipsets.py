"""The ipsets of one family: made and destroyed by the ``ipset`` tool, read and changed by netlink.

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from kproxy.linux import host
from kproxy.linux.host import HostError, reason_of
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs.diff import ChangeMembers
from kproxy.proxy.backends.ipvs.kernel import ipset_messages
from kproxy.proxy.backends.ipvs.names import OWN_SETS, IpSet, SetType, set_name
from kproxy.proxy.backends.ipvs.rules import Member

_MOST_MEMBERS, _MOST_MEMBERS_OF_OURS = 1 << 16, 1 << 20
"""Size limits of sets: kube-proxy's for those that it has too, and that of `OWN_SETS`.

The kernel refuses to create an existing set with another limit, so neither proxy could take over from the other."""

MUST_HOLD = OWN_SETS | {IpSet.LOAD_BALANCER_FIREWALL}
"""Our own sets, and the one without a member of which source ranges let everybody in: they hold all, or the sync fails.

Of the others members may be left out, as in kube-proxy: what is missing then is a hairpin, a source range, a masquerade, or
the refusal of ports that no Service has."""

_BATCH = 1000
"""Members that are added before looking whether their set is full."""

_FIRST_OF_IPSET, _FULL = 4096, 4352

_FAMILY = {Family.IPV4: "inet", Family.IPV6: "inet6"}


def create_missing_sets(family: Family) -> None:
    """Create missing sets."""
    _restore("".join(f"create {set_name(which, family)} {_creation(which, family)}\n" for which in IpSet))


def change_members(change: ChangeMembers) -> tuple[Member, ...]:
    """Remove and add members; one that is removed or added already is no failure.

    Returns those for which there is no room: a set is full, and not one of `MUST_HOLD`.
    """
    with Netlink(NETLINK_NETFILTER) as netlink:
        _send(netlink, change.family, change.removed, add=False)
        return tuple(
            member
            for _, added in groupby(change.added, key=attrgetter("set"))
            for member in _add(netlink, change.family, tuple(added))
        )


def _add(netlink: Netlink, family: Family, members: Sequence[Member]) -> Sequence[Member]:
    """Add members of one set; returns those for which there is no room, most of them untried."""
    for start in range(0, len(members), _BATCH):
        batch = members[start : start + _BATCH]
        if without_room := _send(netlink, family, batch, add=True):
            return [*without_room, *members[start + _BATCH :]]
    return ()


def _send(netlink: Netlink, family: Family, members: Sequence[Member], *, add: bool) -> list[Member]:
    """Send one message for each member; returns those for which there is no room."""
    numbers = netlink.send_all(ipset_messages.encode_member(member, family, add=add) for member in members)
    without_room = []
    for member, number in zip(members, numbers, strict=True):
        if number == _FULL and member.set not in MUST_HOLD:
            without_room.append(member)
        elif number:
            what = f"{'add' if add else 'del'} {set_name(member.set, family)} {member.text}"
            raise HostError(f"ipset: {what}", _format_errno(number), reason_of(OSError(number, "")))
    return without_room


def _format_errno(number: int) -> str:
    """Text of an errno: ipset's own begin at 4096, those of a set type at 4352, the first of which is a full hash."""
    if number == _FULL:
        return "the set is full"
    return os.strerror(number) if number < _FIRST_OF_IPSET else f"ipset error {number}"


def read_members(family: Family) -> set[Member]:
    """All members of our sets; none of a set that is not there, or has another type: another program made it."""
    there = list_set_names()
    found: set[Member] = set()
    with Netlink(NETLINK_NETFILTER) as netlink:
        for which in (which for which in IpSet if set_name(which, family) in there):
            replies = list(netlink.dump(*ipset_messages.encode_list_of_members(which, family)))
            if all(ipset_messages.is_of_type(which, reply) for reply in replies):
                found.update(m for reply in replies for m in ipset_messages.decode_members(which, reply))
    return found


def list_set_names() -> frozenset[str]:
    """The names of all existing sets."""
    with Netlink(NETLINK_NETFILTER) as netlink:
        return frozenset(
            map(ipset_messages.decode_name, netlink.dump(*ipset_messages.encode_list_of_names()))
        )


def destroy_sets(family: Family) -> None:
    """Destroy our sets; no rule may refer to them."""
    there = list_set_names()
    names = [name for which in IpSet if (name := set_name(which, family)) in there]
    if names:
        _restore("".join(f"destroy {name}\n" for name in names))


def _creation(which: IpSet, family: Family) -> str:
    if which.type is SetType.PORT:
        return f"{which.type.value} range 0-65535"
    options = " skbinfo" if which is IpSet.SHORTCUT else ""
    most = _MOST_MEMBERS_OF_OURS if which in OWN_SETS else _MOST_MEMBERS
    return f"{which.type.value} family {_FAMILY[family]} maxelem {most}{options}"


def _restore(text: str) -> None:
    host.run_tool(("ipset", "restore", "-exist"), _once(text))


def _once(text: str) -> Iterator[bytes]:
    yield text.encode()
