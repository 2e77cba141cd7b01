"""`PlanSettings` of one family, from the configuration, the Node and the machine's addresses.

Used by `kproxy.proxy.daemon.sync.family_sync` before each plan. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from kproxy.model.api import ZONE_LABEL, Cluster, Node, ServiceCIDR, key_of
from kproxy.model.network import Address, Family, Network, family_of, parse_address, parse_network
from kproxy.proxy.backends import Relayed, find_backend
from kproxy.proxy.daemon.config.configuration import Configuration, DetectLocal
from kproxy.proxy.daemon.config.validation import PRIMARY
from kproxy.proxy.plan import (
    DetectByCIDR,
    DetectByInterface,
    DetectByInterfacePrefix,
    LocalDetector,
    Note,
    PlanSettings,
)

_LOCALHOST = "127.0.0.1/32"
_BY_PREFERENCE = ("InternalIP", "ExternalIP")


def plan_settings(
    config: Configuration,
    family: Family,
    name: str,
    node: Node | None,
    addresses: tuple[Address, ...],
    service_cidrs: Collection[ServiceCIDR] = (),
) -> PlanSettings:
    """Settings for the plan of one family.

    ``name`` is this node's name, ``node`` the Node object when there is one, ``addresses`` those of the node's
    interfaces now, of that family. Every mode serves node ports at 127.0.0.1, by rules or by the relay, where
    ``iptables.localhostNodePorts`` and ``nodePortAddresses`` admit it (``node-port.localhost.enabled.served``).
    """
    section = config.masquerade_section
    backend = find_backend(config.mode)
    served = backend.localhost_node_ports or backend.relayed is Relayed.LOOPBACK
    found = PlanSettings(
        family=family,
        node=name,
        zone=node.metadata.labels.get(ZONE_LABEL, "") if node else "",
        node_addresses=addresses,
        detector=_detector(config, family, node),
        masquerade_all=section.masquerade_all,
        localhost_node_ports=served and config.iptables.localhost_node_ports,
        allow_external_ips=config.feature_gates.get("AllowServiceExternalIPs", True),
        service_cidrs=_networks(service_cidrs, family),
        notes=(*(_node_notes(node) if node else ()), *_service_cidr_notes(service_cidrs)),
    )
    return _with_node_ips(found, config, node_addresses(config, node))


def _with_node_ips(
    settings: PlanSettings, config: Configuration, node_ips: tuple[Address, ...]
) -> PlanSettings:
    """Settings with the node's primary addresses, and what follows from them."""
    return replace(
        settings,
        node_ips=tuple(ip for ip in node_ips if family_of(ip) is settings.family),
        node_port_cidrs=_node_port_cidrs(config, node_ips),
    )


class CurrentSettings:
    """The settings of one family for a cluster, made anew only where the Node, its addresses or ServiceCIDRs are other objects.

    Both the cluster's store and the monitor of addresses return the same object as long as nothing changes, so a check of
    what has changed costs next to nothing.
    """

    def __init__(
        self, config: Configuration, family: Family, name: str, addresses: Callable[[], tuple[Address, ...]]
    ) -> None:
        """Arguments of `plan_settings`; ``addresses`` returns those of the node's interfaces now."""
        self._config, self._family, self._name, self._addresses = config, family, name, addresses
        self._inputs: tuple[object, ...] = ()
        self._node_ips: tuple[Address, ...] = ()
        self._latest: PlanSettings | None = None

    def __call__(self, cluster: Cluster) -> PlanSettings:
        """The settings now; raises `HostError` where the addresses cannot be read."""
        node, addresses, cidrs = cluster.node(self._name), self._addresses(), cluster.service_cidrs
        inputs = (node, addresses, cidrs)
        if self._latest is None or any(new is not old for new, old in zip(inputs, self._inputs, strict=True)):
            found = plan_settings(self._config, self._family, self._name, node, addresses, cidrs.values())
            self._node_ips = node_addresses(self._config, node, self._node_ips)
            self._latest = _with_node_ips(found, self._config, self._node_ips)
            self._inputs = inputs
        return self._latest


def node_addresses(
    config: Configuration, node: Node | None, last_known: tuple[Address, ...] = ()
) -> tuple[Address, ...]:
    """Primary address of the node in each family it has one of, the preferred family first (``ds.primary``).

    By the Node object, internal before external; ``bindAddress`` beats it for its own family unless it is a wildcard. In a
    family of which the Node has none, the ``last_known`` one stays.
    """
    bound = parse_address(config.bind_address)
    candidates = [bound] if bound is not None and not bound.is_unspecified else []
    first: dict[Family, Address] = {}
    for address in (*candidates, *status_addresses(node), *last_known):
        first.setdefault(family_of(address), address)
    return tuple(first.values())


def status_addresses(node: Node | None) -> tuple[Address, ...]:
    """Addresses of the Node object, internal before external; empty without a Node."""
    listed = (node.status.addresses or ()) if node else ()
    parsed = (parse_address(item.address) for kind in _BY_PREFERENCE for item in listed if item.type == kind)
    return tuple(address for address in parsed if address is not None)


def pod_networks(node: Node | None) -> tuple[Network, ...]:
    """Networks of the pods of this node; empty until a controller has assigned some."""
    if node is None:
        return ()
    parsed = map(parse_network, _pod_network_texts(node))
    return tuple(network for network in parsed if network is not None)


def _pod_network_texts(node: Node) -> list[str]:
    return node.spec.pod_cidrs or ([node.spec.pod_cidr] if node.spec.pod_cidr else [])


def _networks(service_cidrs: Iterable[ServiceCIDR], family: Family) -> tuple[Network, ...]:
    parsed = (parse_network(text) for each in service_cidrs for text in each.spec.cidrs or ())
    return tuple(network for network in parsed if network is not None and family_of(network) is family)


def _node_notes(node: Node) -> Iterator[Note]:
    for item in node.status.addresses or ():
        if item.type in _BY_PREFERENCE and parse_address(item.address) is None:
            yield Note("Node", key_of(node), f"{item.type} {item.address!r} is not an IP address")
    for text in _pod_network_texts(node):
        if parse_network(text) is None:
            yield Note("Node", key_of(node), f"network of pods {text!r} is not a CIDR")


def _service_cidr_notes(service_cidrs: Iterable[ServiceCIDR]) -> Iterator[Note]:
    for each in service_cidrs:
        for text in each.spec.cidrs or ():
            if parse_network(text) is None:
                yield Note("ServiceCIDR", key_of(each), f"{text!r} is not a CIDR")


def _detector(config: Configuration, family: Family, node: Node | None) -> LocalDetector:
    """Detector of local traffic by ``detectLocalMode``, None for none.

    Clauses ``detect-local.cluster-cidr``, ``detect-local.node-cidr``, ``detect-local.bridge-interface``,
    ``detect-local.interface-name-prefix``, ``masquerade.cluster-ip.no-detector.preserved``,
    ``detect-local.cluster-cidr.per-family``.
    """
    match DetectLocal(config.detect_local_mode):
        case DetectLocal.CLUSTER_CIDR:
            return _by_network(map(parse_network, config.cluster_cidr.split(",")), family)
        case DetectLocal.NODE_CIDR:
            return _by_network(pod_networks(node), family)
        case DetectLocal.BRIDGE_INTERFACE:
            return DetectByInterface(config.detect_local.bridge_interface)
        case DetectLocal.INTERFACE_NAME_PREFIX:
            return DetectByInterfacePrefix(config.detect_local.interface_name_prefix)


def _by_network(networks: Iterable[Network | None], family: Family) -> LocalDetector:
    """Detector by the first network of the family, None without one.

    Clause ``detect-local.cluster-cidr.first-of-family``.
    """
    for network in networks:
        if network is not None and family_of(network) is family:
            return DetectByCIDR(network)
    return None


def _node_port_cidrs(config: Configuration, node_ips: tuple[Address, ...]) -> tuple[Network, ...] | None:
    """Node port ranges of both families, None for no restriction.

    Clauses ``node-port.addresses.primary.served``, ``node-port.addresses.not-primary.untouched``,
    ``node-port.addresses.inside-configured.served``, ``node-port.addresses.outside-configured.untouched``,
    ``node-port.addresses.primary-unknown.either``; the plan selects its
    family's. A mode whose default are the primary addresses serves 127.0.0.1 beside them by default, and not where
    they are asked for.
    """
    given = config.node_port_addresses
    primary = tuple(f"{ip}/{ip.max_prefixlen}" for ip in node_ips)
    texts = primary if given == (PRIMARY,) else given
    if not given and find_backend(config.mode).primary_node_ports:
        texts = (*primary, *([_LOCALHOST] if any(ip.version == 4 for ip in node_ips) else []))
    networks = tuple(network for network in map(parse_network, texts) if network is not None)
    return networks or None
