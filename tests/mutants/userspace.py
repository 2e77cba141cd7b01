"""Mutants of userspace mode: which socket a packet is sent to, what is refused, and what the relay's ports are."""

from __future__ import annotations

from dataclasses import replace as replaced

import msgspec

from kproxy.model.network import Protocol
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import OnEmpty
from tests.mutants.mutant import Function, Patch, Wrap, answering, in_userspace, instead

_BACKEND = "kproxy.proxy.backends.userspace"
_RELAY = "kproxy.proxy.relay.portals"


def _frontends(change: Function) -> Wrap:
    """A compiler that is given other frontends."""

    def wrap(compile_: Function) -> Function:
        def compiled(service: msgspec.Struct, *of: object) -> object:
            changed = tuple(change(frontend) for frontend in service.frontends)  # type: ignore[attr-defined]
            return compile_(msgspec.structs.replace(service, frontends=changed), *of)

        return compiled

    return wrap


def _ports(**changes: object) -> Wrap:
    """Ports of the relay with other fields; a function is given the field."""

    def wrap(pool_ports: Function) -> Function:
        def changed(*of: object, **options: object) -> object:
            for port in pool_ports(*of, **options):
                fields = {
                    name: change(getattr(port, name)) if callable(change) else change
                    for name, change in changes.items()
                }
                yield msgspec.structs.replace(port, **fields)

        return changed

    return wrap


def _without_chain(table: TableName, chain: str) -> Wrap:
    """A desired state in which a chain is empty."""

    def wrap(desired_state: Function) -> Function:
        def emptied(*of: object, **options: object) -> object:
            state = desired_state(*of, **options)
            tables = {**state.tables, table: {**state.tables[table], chain: ()}}
            return replaced(state, tables=tables)

        return emptied

    return wrap


def _state(wrap: Wrap) -> tuple[Patch, ...]:
    """The same in the kernel's applier and in the simulator."""
    return (
        Patch(f"{_BACKEND}.kernel.applier:desired_state", wrap),
        Patch("kproxy.conformance.testbeds.simulator.userspace:desired_state", wrap),
    )


def _all_from_node(frontend: msgspec.Struct) -> msgspec.Struct:
    pool = frontend.pool  # type: ignore[attr-defined]
    return msgspec.structs.replace(frontend, pool=msgspec.structs.replace(pool, endpoints=pool.endpoints[:1]))


def _all_from_client(frontend: msgspec.Struct) -> msgspec.Struct:
    pool = frontend.pool  # type: ignore[attr-defined]
    return msgspec.structs.replace(
        frontend, pool=msgspec.structs.replace(pool, endpoints=pool.endpoints[-1:])
    )


def _no_shortcut(frontend: msgspec.Struct) -> msgspec.Struct:
    return msgspec.structs.replace(frontend, shortcut=None)


def _rejecting(frontend: msgspec.Struct) -> msgspec.Struct:
    return msgspec.structs.replace(frontend, on_empty=OnEmpty.REJECT)


MUTANTS = (
    in_userspace(
        "userspace.sockets.from-node",
        "Clients whose address is to be kept come to the socket that dials from the node.",
        Patch(f"{_BACKEND}.desired_state:translations", _frontends(_all_from_node)),
        clauses="masquerade.cluster-ip.pod-source-preserved external-policy.local.local-endpoints-source-preserved",
    ),
    in_userspace(
        "userspace.sockets.from-client",
        "Clients whose address is to be rewritten come to the socket that dials from their address.",
        Patch(f"{_BACKEND}.desired_state:translations", _frontends(_all_from_client)),
        clauses="masquerade.cluster-ip.outside-rewritten masquerade.external-policy-cluster.rewritten",
    ),
    in_userspace(
        "userspace.shortcut",
        "External policy Local binds pods and the node too.",
        Patch(f"{_BACKEND}.desired_state:translations", _frontends(_no_shortcut)),
        clauses="external-policy.local.host-reaches-all-endpoints external-policy.local.pods-reach-all-endpoints",
    ),
    in_userspace(
        "userspace.chain.portals-host",
        "The node's own packets to addresses of Services are sent to no socket.",
        *_state(_without_chain(TableName.NAT, names.PORTALS_HOST)),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    in_userspace(
        "userspace.chain.nodeport-container",
        "Packets from elsewhere to node ports are sent to no socket.",
        *_state(_without_chain(TableName.NAT, names.NODE_PORT_CONTAINER)),
        clauses="node-port.reaches-ready-endpoint",
    ),
    in_userspace(
        "userspace.chain.portals-filter",
        "What no rule sends to a socket is neither refused nor dropped.",
        *_state(_without_chain(TableName.FILTER, names.PORTALS_FILTER)),
        clauses="endpoints.none.rejected",
    ),
    in_userspace(
        "userspace.refusal.silent",
        "What policy Local leaves without endpoint is refused instead of dropped.",
        Patch(f"{_BACKEND}.desired_state:refusals", _frontends(_rejecting)),
        clauses="external-policy.local.drop-without-local-endpoint internal-policy.local.drop-without-local-endpoint",
    ),
    in_userspace(
        "userspace.source-ranges",
        "Every source is sent to the socket.",
        Patch(f"{_BACKEND}.compile:_senders", answering(((),))),
        clauses="source-ranges.outside-dropped",
    ),
    in_userspace(
        "userspace.relay.one-endpoint",
        "The relay knows the first endpoint of a pool alone.",
        Patch(f"{_RELAY}:pool_ports", _ports(endpoints=lambda found: found[:1])),
        clauses="balancing.every-endpoint-chosen",
    ),
    in_userspace(
        "userspace.relay.affinity",
        "The relay remembers no client.",
        Patch(f"{_RELAY}:pool_ports", _ports(affinity_seconds=None)),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    in_userspace(
        "userspace.relay.on-node",
        "Processes of the node are dialled from the node for clients whose address is rewritten elsewhere.",
        Patch(f"{_RELAY}:pool_ports", _ports(on_node=frozenset())),
        clauses="masquerade.endpoint-of-the-node-itself.preserved",
    ),
    in_userspace(
        "userspace.relay.udp",
        "The relay speaks TCP alone.",
        Patch(f"{_RELAY}:RELAYED", instead((Protocol.TCP,))),  # type: ignore[arg-type]
        clauses="protocol.udp.served",
    ),
)
