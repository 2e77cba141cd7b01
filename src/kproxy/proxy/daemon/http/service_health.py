"""Health check node ports: load balancers query here whether this node has endpoints of a Service.

Fed by `kproxy.proxy.daemon.sync.family_sync` with each plan that is in the kernel
(``health-check.local-endpoints.told``), served by
`kproxy.proxy.daemon.http.ports`. One `ServiceHealthServer` a family, since each has its own addresses and endpoints.
Behaviours ``hcnp.*``; the deletion taint does not matter here (``health-check.leaving-node.unaffected``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address

import msgspec

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.model.api import Key
from kproxy.model.network import Address, Family
from kproxy.proxy.daemon.http.ports import HttpServer, ListeningPort
from kproxy.proxy.daemon.http.protocol import HttpRequest, HttpResponse
from kproxy.proxy.plan import HealthCheck, NodePorts, Plan

WEIGHT_HEADER = "X-Load-Balancing-Endpoint-Weight"

_WILDCARD: dict[Family, Address] = {Family.IPV4: IPv4Address(0), Family.IPV6: IPv6Address(0)}
_LOCALHOST = IPv4Address("127.0.0.1")

log = logging.getLogger(__name__)

_ServiceNodePort = tuple[Key, int]


_PAYLOAD = """\
{
\t"service": {
\t\t"namespace": %s,
\t\t"name": %s
\t},
\t"localEndpoints": %s,
\t"serviceProxyHealthy": %s
}"""
"""Body of a response, byte for byte kube-proxy's."""


def health_check_response(check: HealthCheck, *, up_to_date: bool) -> HttpResponse:
    """Response to a load balancer's probe.

    ``up_to_date``: true if no change has waited too long (``health-check.late-proxy.told``).  Clauses
    ``health-check.local-endpoints.told``, ``health-check.number.told``, ``health-check.weight.told``.
    """
    well = check.endpoints > 0 and up_to_date
    values = (*check.service, check.endpoints, up_to_date)
    payload = _PAYLOAD % tuple(msgspec.json.encode(value).decode() for value in values)
    return HttpResponse(
        HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE,
        payload.encode(),
        headers={WEIGHT_HEADER: str(check.endpoints)},
    )


class ServiceHealthServer:
    """Health check node ports of one family."""

    def __init__(
        self,
        family: Family,
        ports: HttpServer,
        up_to_date: Callable[[], bool],
        failed: Callable[[Key, str], None] = lambda _service, _why: None,
    ) -> None:
        """``failed`` is called once, with the reason, when a Service's port cannot be opened (``health-check.port-in-use.tried-again``)."""
        self._family, self._ports, self._up_to_date, self._failed = family, ports, up_to_date, failed
        self._checks: dict[Key, HealthCheck] = {}
        self._listening: dict[tuple[_ServiceNodePort, Address], ListeningPort] = {}
        self._reported: set[_ServiceNodePort] = set()
        self._shortage_reported = False
        self._served_plan: Plan | None = None
        """Plan all ports of which are open; None while some are not."""

    def update(self, plan: Plan) -> None:
        """Listen at the plan's ports and at no other, and serve its counts.

        Call it again with the same plan to retry ports that could not be opened.
        """
        if plan is self._served_plan:
            return
        self._served_plan = None
        self._checks = {check.service: check for check in plan.health_checks}
        addresses = _addresses(plan.node_ports, self._family)
        service_ports = [(check.service, check.port) for check in plan.health_checks]
        wanted = {(place, address) for place in service_ports for address in addresses}
        for gone in [each for each in self._listening if each not in wanted]:
            self._ports.close(self._listening.pop(gone))
        self._reported.intersection_update(service_ports)
        shortage: OSError | None = None
        for place in service_ports:
            shortage = shortage or self._open(place, addresses)
        closed = sorted({place for place, _ in wanted - self._listening.keys()})
        self._report_shortage(closed, shortage)
        self._served_plan = None if closed else plan

    def _open(self, node_port: _ServiceNodePort, addresses: tuple[Address, ...]) -> OSError | None:
        """Open a port at each address; one that fails does not affect the others.

        Returns the error when descriptors ran out: then there is none for other Services' ports either.
        """
        errors = [error for address in addresses if (error := self._listen(node_port, address)) is not None]
        shortage = next(filter(descriptors.is_shortage, errors), None)
        if shortage is None and errors:
            self._report_failure(node_port, str(errors[0]))
        elif shortage is None:
            self._reported.discard(node_port)
        return shortage

    def _listen(self, node_port: _ServiceNodePort, address: Address) -> OSError | None:
        if (node_port, address) in self._listening:
            return None
        service, port = node_port
        try:
            listener = self._ports.listen(address, port, self._handler(service))
            if descriptors.is_reserved(listener.socket.fileno(), Purpose.LISTENER):
                self._ports.close(listener)
                raise descriptors.reserved_error()
        except OSError as error:
            descriptors.count_shortage(error, Purpose.LISTENER)
            return error
        self._listening[node_port, address] = listener
        return None

    def _report_shortage(self, closed: Sequence[_ServiceNodePort], shortage: OSError | None) -> None:
        """Report a shortage of descriptors once, for all affected ports: one log line and one event, on the first Service."""
        if shortage is not None and not self._shortage_reported:
            service, port = closed[0]
            text = (
                f"cannot listen on {len(closed)} health check node ports ({self._family.value}), "
                f"the first {port}: {shortage.strerror}{descriptors.shortage_hint(shortage)}"
            )
            log.error("%s, of Service %s/%s", text, *service)
            self._failed(service, text)
        elif shortage is None and self._shortage_reported:
            log.info("%s: there are descriptors for all health check node ports again", self._family.value)
        self._shortage_reported = shortage is not None

    def _report_failure(self, node_port: _ServiceNodePort, why: str) -> None:
        if node_port not in self._reported:
            self._reported.add(node_port)
            service, port = node_port
            text = f"cannot listen on health check node port {port} ({self._family.value}): {why}"
            log.error("Service %s/%s: %s", *service, text)
            self._failed(service, text)

    def _handler(self, service: Key) -> Callable[[HttpRequest], HttpResponse]:
        """Handler of a Service's port, for any path; a probe while the port closes gets zero endpoints.

        Clause ``health-check.any-path.answered``.
        """

        def handle(_: HttpRequest) -> HttpResponse:
            check = self._checks.get(service, HealthCheck(service, 0, 0))
            return health_check_response(check, up_to_date=self._up_to_date())

        return handle


def _addresses(node_ports: NodePorts, family: Family) -> tuple[Address, ...]:
    """Addresses to listen at: those that accept node ports (``health-check.node-port-addresses.bind``)."""
    if node_ports.addresses is None:
        return (_WILDCARD[family],)
    return (*node_ports.addresses, *([_LOCALHOST] if node_ports.localhost else []))
