"""Netlink socket of IPVS: sends commands and lists objects.  All failures are `kproxy.linux.host.HostError`."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Sequence

from kproxy.linux.host import HostError, Reason
from kproxy.linux.netlink import NetlinkFlag, attribute, attributes
from kproxy.linux.netlink_socket import Netlink, NetlinkError
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs.diff import (
    IpvsCommand,
    RemoveDestination,
    RemoveServer,
    SetDestination,
    SetServer,
)
from kproxy.proxy.backends.ipvs.kernel import ipvs_messages
from kproxy.proxy.backends.ipvs.kernel.ipvs_messages import ListedDestination, ListedServer
from kproxy.proxy.backends.ipvs.rules import Key

_GENERIC = 16
_FIND_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2


class Ipvs(Netlink):
    """Socket to the IPVS of this network namespace.  ``sent`` counts messages."""

    def __init__(self) -> None:
        """Open the socket; the kernel loads its IPVS module if needed."""
        super().__init__(_GENERIC)
        self.sent = 0
        self._decoded: dict[tuple[Family, bytes], ListedServer | None] = {}
        self._kind = self._find()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, commands: Sequence[IpvsCommand], family: Family) -> None:
        """Send commands; an object that exists or is removed already is no failure."""
        messages = [(self._kind, *ipvs_messages.encode_command(order, family)) for order in commands]
        self.sent += len(messages)
        again: list[IpvsCommand] = []
        for order, number in zip(commands, self.send_all(messages), strict=True):
            match order, number:
                case ((SetServer() | SetDestination()), errno.EEXIST) if order.new:
                    again.append(_as_set_command(order))
                case ((RemoveServer() | RemoveDestination()), errno.ESRCH | errno.ENOENT):
                    pass
                case _, 0:
                    pass
                case _:
                    raise NetlinkError(f"ipvs: {order}", number)
        if again:
            self.send(again, family)

    def configure(self, tcp: int, tcp_fin: int, udp: int) -> None:
        """Set timeouts, in seconds."""
        self._send_one("set the timeouts of IPVS", ipvs_messages.encode_timeouts(tcp, tcp_fin, udp))

    def servers(self, family: Family) -> list[ListedServer]:
        """All virtual servers of the family, those of other programs too; what is as in the list before is not decoded again."""
        self.sent += 1
        known, self._decoded = self._decoded, {}
        for answer in self.dump(self._kind, ipvs_messages.generic_netlink_message(ipvs_messages.GET_SERVICE)):
            key = family, ipvs_messages.without_statistics(answer)
            self._decoded[key] = known[key] if key in known else ipvs_messages.decode_server(answer, family)
        return [found for found in self._decoded.values() if found is not None]

    def destinations(self, key: Key, family: Family) -> list[ListedDestination]:
        """The destinations of a virtual server."""
        self.sent += 1
        answers = self.dump(self._kind, ipvs_messages.encode_destinations_query(key, family))
        return [ipvs_messages.decode_destination(payload, family) for payload in answers]

    def _find(self) -> int:
        name = attribute(_FAMILY_NAME, b"IPVS\0")
        body = struct.pack("BBxx", _FIND_FAMILY, 1)
        (number,) = self.send_all([(_GENERIC, NetlinkFlag(0), body + name)])
        if number:
            fix = "this kernel has no IPVS (a kernel with CONFIG_IP_VS, or modprobe ip_vs)"
            raise HostError("find generic netlink family IPVS", fix, Reason.UNSUPPORTED)
        for payload in self.dump(_GENERIC, body):
            family = attributes(payload[ipvs_messages.HEADER_SIZE :])
            if bytes(family[_FAMILY_NAME]) == b"IPVS\0":
                return int(struct.unpack_from("=H", family[_FAMILY_ID])[0])
        raise HostError("find generic netlink family IPVS", "it is not listed", Reason.UNSUPPORTED)

    def _send_one(self, what: str, body: bytes) -> None:
        self.sent += 1
        (number,) = self.send_all([(self._kind, NetlinkFlag(0), body)])
        if number:
            raise NetlinkError(f"ipvs: {what}", number)


def has_scheduler(ipvs: Ipvs, probe: Iterable[IpvsCommand], family: Family) -> bool:
    """True if the kernel accepts commands that use a scheduler."""
    try:
        ipvs.send(tuple(probe), family)
    except HostError as error:
        if error.reason is not Reason.MISSING:
            raise
        return False
    return True


def _as_set_command(order: SetServer | SetDestination) -> IpvsCommand:
    match order:
        case SetServer(key, server):
            return SetServer(key, server, new=False)
        case SetDestination(key, destination, weight):
            return SetDestination(key, destination, weight, new=False)
