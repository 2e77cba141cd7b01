"""Mutants of node ports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End, Jump
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.plan import NodePorts, PlanSettings
from tests.mutants.mutant import Function, Patch, answering, in_ipvs, in_nftables, mutant
from tests.mutants.patches.iptables import FILTER, Rules, left_out, without
from tests.mutants.patches.ipvs import APPLIER
from tests.mutants.patches.settings import with_settings


def _of_the_start(node_ports: Function) -> Function:
    """Node ports on all addresses are served on those of the start only."""
    first: dict[object, Any] = {}

    def known(settings: PlanSettings) -> NodePorts:
        there = first.setdefault((settings.node, settings.family), settings.node_addresses)
        found: NodePorts = node_ports(settings)
        listed = tuple(a for a in there if not a.is_loopback) if found.addresses is None else found.addresses
        return NodePorts(addresses=listed, localhost=found.localhost)

    return known


def _everywhere(node_ports: Function) -> Function:
    return lambda settings: NodePorts(addresses=None, localhost=node_ports(settings).localhost)


MUTANTS = (
    mutant(
        "dispatch.node-port",
        "Node ports are not taken to Services.",
        *left_out(Rules(chain=names.SERVICES, target=Jump(names.NODE_PORTS))),
        clauses="node-port.reaches-ready-endpoint",
    ),
    mutant(
        "dispatch.node-port-anywhere",
        "A node port is one at any address.",
        *without(Rules(chain=names.SERVICES, target=Jump(names.NODE_PORTS)), FieldName.DESTINATION_TYPE),
        clauses="node-port.number-on-service-address.not-served",
    ),
    mutant(
        "guard.localhost",
        "Loopback addresses can be reached from outside while they can be routed to.",
        *left_out(Rules(chain=names.FIREWALL, target=End.DROP, table=FILTER)),
        clauses="node-port.localhost.martian-dropped",
        needs_kernel=True,
    ),
    mutant(
        "forward.accept",
        "Marked traffic is not accepted where forwarding is dropped by default.",
        *left_out(Rules(chain=names.FORWARD, target=End.ACCEPT, table=FILTER, having=(FieldName.MARK,))),
        clauses="node-port.forward-policy-drop.passes",
        needs_kernel=True,
    ),
    mutant(
        "configuration.node-port-addresses-ignored",
        "Node ports are served on all addresses.",
        Patch("kproxy.proxy.plan.planner:node_ports", _everywhere),
        clauses="node-port.addresses.outside-configured.untouched node-port.addresses.not-primary.untouched",
    ),
    mutant(
        "configuration.node-port-addresses-of-the-start",
        "Where all addresses serve node ports, those that come later do not.",
        Patch("kproxy.proxy.plan.planner:node_ports", _of_the_start),
        clauses="node-port.addresses.gained.served",
    ),
    mutant(
        "configuration.localhost-on",
        "Loopback addresses serve node ports though they must not.",
        Patch("kproxy.proxy.plan.planner:node_ports", with_settings(localhost_node_ports=True)),
        clauses="node-port.localhost.disabled.untouched",
    ),
    mutant(
        "configuration.localhost-off",
        "Loopback addresses serve no node ports though they must.",
        Patch("kproxy.proxy.plan.planner:node_ports", with_settings(localhost_node_ports=False)),
        clauses="node-port.localhost.enabled.served",
    ),
    in_nftables(
        "nftables.node-port-anywhere",
        "Where all addresses of the node serve node ports, any address does.",
        Patch(
            "kproxy.proxy.backends.nftables.static_rules:node_port_destinations",
            lambda found: lambda *of: found(*of)[:1],
        ),
        clauses="node-port.number-on-service-address.not-served",
    ),
    in_ipvs(
        "ipvs.node-ports",
        "There are no virtual servers of node ports.",
        Patch(
            "kproxy.proxy.backends.ipvs.compile:_frontend_addresses",
            lambda requested: (
                lambda frontend, context: (frontend.address and requested(frontend, context)) or ()
            ),
        ),
        clauses="node-port.reaches-ready-endpoint",
    ),
    in_ipvs(
        "ipvs.node-addresses-of-the-start",
        "Addresses that come and go on other interfaces are not noticed.",
        Patch("kproxy.linux.node_addresses:AddressMonitor._discard_changed", answering(value=None)),
        clauses="node-port.addresses.gained.served",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.node-port-addresses",
        "Node ports are served at every address, whatever is configured.",
        Patch(
            f"{APPLIER}IpvsKernel._context",
            lambda context: (
                lambda kernel, plan: replace(
                    found := context(kernel, plan),
                    node_port_addresses=tuple(a for a in found.node_addresses if not a.is_loopback),
                )
            ),
        ),
        clauses="node-port.addresses.outside-configured.untouched",
        needs_kernel=True,
    ),
)
