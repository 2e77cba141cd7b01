"""Leftovers of ipvs mode, once another mode serves: withdrawn from new connections, and removed when they hold none any more.

A connection of IPVS needs its destination, since the kernel drops packets of one whose destination is gone (ip_vs_in), and a route that makes
the Service's address local, since IPVS sees what is for the node.  It needs neither chains nor sets nor the device.  So while there are
connections, destinations stay at weight 0, and addresses go on as routes (`device.route_addresses`): from the device they
would be what the node's own new connections come from, which then would end with the drain.

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kproxy.linux import conntrack
from kproxy.linux.host import HostError
from kproxy.linux.node_addresses import list_addresses, source_address
from kproxy.model.network import Address, Family, Protocol
from kproxy.proxy.backends.ipvs.diff import RemoveServer, SetDestination
from kproxy.proxy.backends.ipvs.kernel import device, ipsets
from kproxy.proxy.backends.ipvs.kernel.applier import Ownership
from kproxy.proxy.backends.ipvs.kernel.chains import IptablesChains
from kproxy.proxy.backends.ipvs.kernel.ipvs_socket import Ipvs
from kproxy.proxy.backends.ipvs.names import DEVICE, IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import AddressKey
from kproxy.proxy.backends.ipvs.static_rules import Options
from kproxy.proxy.backends.xtables.kernel.tools import find_tools

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from kproxy.linux.conntrack import Socket
    from kproxy.proxy.backends.ipvs.kernel.ipvs_messages import ListedDestination
    from kproxy.proxy.backends.ipvs.rules import Key
    from kproxy.proxy.plan import Plan

_MASQUERADE_BIT = 14

_Servers = Mapping["Key", "Sequence[ListedDestination]"]


def leave_device(family: Family) -> None:
    """Make our addresses local by routes, not by the device: the node's own new connections then come from an address that stays.

    IPVS serves them all the same; rules of another mode would send such a connection on with its source, the Service's address.
    """
    if not device.device_exists():
        return
    node, bound = list_addresses(family, DEVICE)
    if bound:
        device.route_addresses(tuple(bound), source_address(family) or _any_usable(node))
        device.remove_addresses(tuple(bound))


def drain_ipvs(plan: Plan) -> bool:
    """Withdraw the objects of ipvs mode, ours or kube-proxy's, from new connections; True while IPVS has connections of theirs.

    Those that the plan of the running mode does not serve are removed: IPVS would refuse what passes the other mode's rules.
    Has no effect, and loads no module, where there are none.
    """
    family = plan.family
    if not _has_addresses(family):
        return False
    with Ipvs() as ipvs:
        servers = _our_servers(ipvs, family)
        leave_device(family)
        IptablesChains(find_tools(family)).remove()
        unserved = _unserved(plan, servers)
        _release(ipvs, family, {key: servers[key] for key in unserved}, servers.keys() - unserved)
        servers = {key: found for key, found in servers.items() if key not in unserved}
        weighted = [(key, one) for key, found in servers.items() for one in found if one.weight]
        ipvs.send(tuple(SetDestination(key, one.destination, 0, new=False) for key, one in weighted), family)
        return any(one.connections for key in servers for one in ipvs.destinations(key, family))


def _unserved(plan: Plan, servers: _Servers) -> set[Key]:
    """Virtual servers at whose sockets the plan has no frontend; those by mark are reached by no new connection anyway."""
    served = {(f.address, f.port, service.protocol) for service in plan.services for f in service.frontends}

    def is_served(key: AddressKey) -> bool:
        of_node = plan.node_ports.addresses is None or key.address in plan.node_ports.addresses
        at_node_port = of_node and (None, key.port, key.protocol) in served
        return at_node_port or (key.address, key.port, key.protocol) in served

    return {key for key in servers if isinstance(key, AddressKey) and not is_served(key)}


def _release(ipvs: Ipvs, family: Family, unserved: _Servers, others: AbstractSet[Key]) -> None:
    """Remove virtual servers, and the routes to addresses that no other one has."""
    if not unserved:
        return
    left = {key.address for key in others if isinstance(key, AddressKey)}
    device.remove_routes(tuple(device.routed_addresses(family) - left))
    ipvs.send(tuple(RemoveServer(key) for key in unserved), family)
    _end_udp_flows(family, unserved)


def end_drain(family: Family) -> None:
    """Remove the routes of a drain: ipvs mode serves again, and its addresses are on the device."""
    device.remove_routes(tuple(device.routed_addresses(family)))


def remove_ipvs_objects(family: Family) -> None:
    """Remove the objects of ipvs mode, ours or kube-proxy's, in one family; foreign virtual servers stay.

    Chains that other modes have too stay.  Has no effect, and loads no module, where there are none.
    """
    if not _has_addresses(family) and _existing_sets().isdisjoint(set_name(one, family) for one in IpSet):
        return
    if _has_addresses(family):
        with Ipvs() as ipvs:
            servers = _our_servers(ipvs, family)
            end_drain(family)
            if device.device_exists():
                device.remove_addresses(tuple(list_addresses(family, DEVICE).device))
            ipvs.send(tuple(RemoveServer(key) for key in servers), family)
        _end_udp_flows(family, servers)
        if not any(list_addresses(other, DEVICE).device for other in Family):
            device.delete_device()
    IptablesChains(find_tools(family)).remove()
    ipsets.destroy_sets(family)


def _any_usable(node: Sequence[Address]) -> Address | None:
    usable = [one for one in node if not (one.is_loopback or one.is_link_local)]
    return min(usable, key=int, default=None)


def _has_addresses(family: Family) -> bool:
    return device.device_exists() or bool(device.routed_addresses(family))


def _our_servers(ipvs: Ipvs, family: Family) -> _Servers:
    """Our virtual servers with their destinations."""
    node, bound = list_addresses(family, DEVICE)
    taken = bound | device.routed_addresses(family)
    options = Options(1 << _MASQUERADE_BIT)
    mine = Ownership(ipsets.read_members(family), taken, frozenset(node), options, ())
    ours = [found.key for found in ipvs.servers(family) if mine.has(found.key)]
    return {key: ipvs.destinations(key, family) for key in ours}


def _end_udp_flows(family: Family, servers: _Servers) -> None:
    """Delete the connection tracking entries of flows that IPVS translated: their next datagram is the other mode's."""
    frontends = {
        (k.address, k.port) for k in servers if isinstance(k, AddressKey) and k.protocol is Protocol.UDP
    }
    endpoints: set[Socket] = {
        (one.destination.address, one.destination.port) for found in servers.values() for one in found
    }
    if frontends:
        flows = conntrack.list_udp_flows(family, frontends.__contains__)
        conntrack.delete_flows([flow for flow in flows if flow.reply_source in endpoints])


def _existing_sets() -> frozenset[str]:
    """Names of sets; none where the kernel or the tool has no ipset."""
    try:
        return ipsets.list_set_names()
    except HostError:
        return frozenset()
