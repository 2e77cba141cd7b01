"""Plans of one Service without regard to others: frontends and pools of its service ports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.model.network import Address, Protocol
from kproxy.proxy import snapshot
from kproxy.proxy.plan.pools import cluster_pool, local_pool, serving_endpoints
from kproxy.proxy.plan.values import (
    Exposure,
    Frontend,
    FrontendKey,
    MasqueradePolicy,
    OnEmpty,
    PlanSettings,
    Pool,
    ServicePlan,
)
from kproxy.proxy.snapshot import Note, TrafficPolicy


def plan_service(
    service: snapshot.ServiceInfo, settings: PlanSettings
) -> tuple[tuple[ServicePlan, ...], tuple[Note, ...]]:
    """Plans of a Service's ports as if no other Service existed, and notes."""
    notes: list[Note] = []
    taken: set[FrontendKey] = set()
    plans = tuple([_service_plan(service, port, settings, taken, notes) for port in service.ports])
    return plans, tuple(notes)


def _service_plan(
    service: snapshot.ServiceInfo,
    port: snapshot.ServicePortInfo,
    settings: PlanSettings,
    taken: set[FrontendKey],
    notes: list[Note],
) -> ServicePlan:
    frontends = []
    for frontend in _Port(service, port, settings, *_pools(service, port, settings, notes)).frontends():
        known = len(taken)  # hashing an address is slow: once is enough
        taken.add((frontend.address, frontend.port, port.protocol))
        if len(taken) > known:
            frontends.append(frontend)
    return ServicePlan(
        name=port.name,
        protocol=port.protocol,
        frontends=tuple(frontends),
        affinity_seconds=service.affinity_seconds,
        serving=serving_endpoints(port.endpoints, settings.node) if port.protocol is Protocol.UDP else (),
    )


def _pools(
    service: snapshot.ServiceInfo, port: snapshot.ServicePortInfo, settings: PlanSettings, notes: list[Note]
) -> tuple[Pool, Pool]:
    """Pools of scope CLUSTER and LOCAL; the same pool twice when neither policy is Local."""
    cluster, reason = cluster_pool(port.endpoints, settings.node, settings.zone)
    if reason is not None:
        notes.append(Note("Service", service.key, f"port {port.name.port!r}: {reason}", refused=False))
    if TrafficPolicy.LOCAL in (service.internal_policy, service.external_policy):
        return cluster, local_pool(port.endpoints, settings.node)
    return cluster, cluster


@dataclass(frozen=True, slots=True)
class _Port:
    """One service port with its pools, and the settings it is planned for."""

    service: snapshot.ServiceInfo
    port: snapshot.ServicePortInfo
    settings: PlanSettings
    cluster: Pool
    local: Pool

    def frontends(self) -> Iterator[Frontend]:
        """All frontends; of two with the same address the caller keeps the first.

        So the source ranges of a load balancer's address hold even if it is listed as an external IP too.

        Clauses ``node-port.reaches-ready-endpoint``, ``node-port.every-node.served``,
        ``external-ip.reaches-ready-endpoint``, ``external-ip.disabled.untouched``,
        ``load-balancer.every-ip.served``, ``load-balancer.without-node-port.served``.
        """
        yield self._internal()
        for address in self.service.load_balancer_ips:
            yield self._external(Exposure.LOAD_BALANCER, address, self.port.port)
        if self.settings.allow_external_ips:
            for address in self.service.external_ips:
                yield self._external(Exposure.EXTERNAL_IP, address, self.port.port)
        if self.port.node_port is not None:
            yield self._external(Exposure.NODE_PORT, None, self.port.node_port)

    def _internal(self) -> Frontend:
        """Frontend of the cluster IP, bound by ``internalTrafficPolicy`` only.

        Clause ``external-policy.cluster-ip-exempt``.

        Clauses ``cluster-ip.reaches-ready-endpoint``, ``internal-policy.local.same-node``,
        ``source-ranges.cluster-ip-exempt``.
        """
        return Frontend(
            exposure=Exposure.CLUSTER_IP,
            address=self.service.cluster_ip,
            port=self.port.port,
            pool=self.local if self.service.internal_policy is TrafficPolicy.LOCAL else self.cluster,
            on_empty=self._on_empty(),
            masquerade=masquerade_of_cluster_ips(self.settings),
        )

    def _external(self, exposure: Exposure, address: Address | None, port: int) -> Frontend:
        """Frontend of an external address or node port, bound by ``externalTrafficPolicy``.

        Policy Local keeps the client's address (``external-policy.local.local-endpoints-source-preserved``).

        Clauses ``masquerade.external-policy-cluster.rewritten``, ``masquerade.all.external-local-exempt``,
        ``internal-policy.external-addresses-exempt``, ``topology.external-traffic.hints-followed``,
        ``source-ranges.node-port-exempt``.
        """
        local = self.service.external_policy is TrafficPolicy.LOCAL
        ranges = self.service.source_ranges if exposure is Exposure.LOAD_BALANCER else None
        return Frontend(
            exposure=exposure,
            address=address,
            port=port,
            pool=self.local if local else self.cluster,
            shortcut=self.cluster if local else None,
            on_empty=self._on_empty(),
            masquerade=MasqueradePolicy.NEVER if local else MasqueradePolicy.ALWAYS,
            sources=ranges,
            allow_hairpin_source=any(
                ip in network for network in ranges or () for ip in self.settings.node_ips
            ),
        )

    def _on_empty(self) -> OnEmpty:
        """DROP when endpoints exist on other nodes only, REJECT when the service port has none anywhere.

        Clauses ``endpoints.none.rejected``, ``internal-policy.local.drop-without-local-endpoint``,
        ``external-policy.local.drop-without-local-endpoint``.
        """
        return OnEmpty.DROP if self.cluster.endpoints else OnEmpty.REJECT


def masquerade_of_cluster_ips(settings: PlanSettings) -> MasqueradePolicy:
    """Masquerade policy of all cluster IPs.

    ALWAYS with masqueradeAll (``masquerade.all.cluster-ip-rewritten``), NEVER without a detector
    (``masquerade.cluster-ip.no-detector.preserved``), else OFF_CLUSTER
    (``masquerade.cluster-ip.outside-rewritten``).
    """
    if settings.masquerade_all:
        return MasqueradePolicy.ALWAYS
    return MasqueradePolicy.NEVER if settings.detector is None else MasqueradePolicy.OFF_CLUSTER
