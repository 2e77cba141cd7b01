"""Sockets towards endpoints: from an address of the node, or from the client's own (IP_TRANSPARENT, ip(7)).

A socket may have an address that is another machine's; that the answers come here is a matter of rules and routes
(`kproxy.proxy.backends.userspace`).  An endpoint that is the client itself would answer to itself, so it is dialled from the node.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from kproxy.proxy.plan.marks import RELAY_MARK

if TYPE_CHECKING:
    from kproxy.proxy.relay.table import RelayEndpoint, RelayPort

Source = tuple[str, int]
"""A client's address and port."""

_IPV6_TRANSPARENT = 75
_IP_BIND_ADDRESS_NO_PORT = 24
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
)
"""Values of Go's net package, which kube-proxy's userspace mode had: a silent peer is probed after 15 s, and lost after 135 s more."""
_TAKEN = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})


def source_for(
    client: Source, endpoint: RelayEndpoint, port: RelayPort, *, keeps_source: bool
) -> Source | None:
    """The address to dial an endpoint from, None for the node's: a client at loopback has none that others could answer to."""
    keeps = keeps_source or endpoint in port.on_node
    return client if keeps and not client[0].startswith(("127.", "::1")) else None


def keep_alive(made: socket.socket) -> None:
    """Have the kernel notice a peer of this TCP connection that vanishes; of a listening socket: of all its connections."""
    for option in _KEEP_ALIVE:
        made.setsockopt(*option)


def dial(endpoint: RelayEndpoint, kind: socket.SocketKind, source: Source | None) -> socket.socket:
    """A non-blocking socket that is connected to an endpoint, or on the way; OSError where that fails at once.

    ``source`` None: from the node.  Else from that address, and from that port if it is free here
    (``masquerade.cluster-ip.pod-source-preserved``, ``external-policy.local.local-endpoints-source-preserved``).
    """
    if source is None or source[0] == endpoint[0]:
        return _dial(endpoint, kind, None)
    try:
        return _dial(endpoint, kind, source)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
    return _dial(endpoint, kind, (source[0], 0))


def _dial(endpoint: RelayEndpoint, kind: socket.SocketKind, source: Source | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint[0] else socket.AF_INET
    made = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    try:
        if source is not None:
            _bind(made, family, source)
        if kind is socket.SOCK_STREAM:
            keep_alive(made)
        made.connect(endpoint)
    except BlockingIOError:  # on the way
        return made
    except OSError:
        made.close()
        raise
    return made


def _bind(made: socket.socket, family: socket.AddressFamily, source: Source) -> None:
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TRANSPARENT, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, RELAY_MARK)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not source[1]:
        made.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    made.bind(source)
