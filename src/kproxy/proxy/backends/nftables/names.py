"""Names of the chains, sets and maps.

Objects that kube-proxy has too keep its names (``nft.maps``, ``nft.chains``) and types: else it could not take its table
back.
"""

from __future__ import annotations

import base64
import enum
import hashlib
from typing import TYPE_CHECKING

from kproxy.proxy.backends.nftables.rules import FRONTEND, NODE_PORT, Key

if TYPE_CHECKING:
    from kproxy.proxy.plan import PoolEndpoint, PoolScope, ServicePlan

SERVICES = "services"
CLUSTER_IP_SERVICES = "cluster-ip-services"
MARK = "mark-for-masquerade"
MASQUERADING = "masquerading"
FIREWALL_CHECK = "firewall-check"
SERVICE_ENDPOINTS_CHECK = "service-endpoints-check"
NODE_PORT_ENDPOINTS_CHECK = "nodeport-endpoints-check"
CLUSTER_IPS_CHECK = "cluster-ips-check"
REJECT = "reject-chain"

CLUSTER_IPS = "cluster-ips"
SERVICE_CIDRS = "service-cidrs"
NODE_PORT_IPS = "nodeport-ips"
HAIRPIN = "hairpin-addresses"
FIREWALL_IPS = "firewall-frontends"
FIREWALL_SOURCES = "firewall-sources"
AFFINITY_CLIENTS = "affinity-clients"

MAX_NAME_LENGTH = 240
"""Characters of a name that are kept; the kernel takes 255."""


class FrontendMaps(enum.Enum):
    """Kinds of frontend: a Service's own address, or a node port.  Each has maps of its own, since their keys differ."""

    ADDRESS = "service"
    NODE_PORT = "nodeport"

    @property
    def key(self) -> Key:
        """Fields of a packet that identify its frontend."""
        return FRONTEND if self is FrontendMaps.ADDRESS else NODE_PORT

    @property
    def plural(self) -> str:
        """Suffix of kube-proxy's names of its maps."""
        return "ips" if self is FrontendMaps.ADDRESS else "nodeports"

    @property
    def policies(self) -> str:
        """The map from external frontends to the chain of their traffic policy."""
        return f"external-{self.plural}"

    @property
    def no_endpoints(self) -> str:
        """The map from frontends without endpoints to a verdict, reject or drop."""
        return "no-endpoint-services" if self is FrontendMaps.ADDRESS else "no-endpoint-nodeports"

    @property
    def cluster(self) -> str:
        """The chain for external traffic policy Cluster."""
        return "external-cluster" if self is FrontendMaps.ADDRESS else "nodeport-cluster"

    @property
    def local(self) -> str:
        """The chain for external traffic policy Local."""
        return "external-local" if self is FrontendMaps.ADDRESS else "nodeport-local"


class PoolRole(enum.Enum):
    """Role of a frontend's pool: its own, or that of senders exempt from policy Local."""

    POOL = ""
    SHORTCUT = "shortcut-"

    def dispatch(self, way: FrontendMaps) -> str:
        """The map from frontends to the chain that picks an endpoint."""
        return f"{self.value or 'service-'}{way.plural}"

    def endpoints(self, way: FrontendMaps) -> str:
        """The map from frontend and number to endpoint."""
        return f"{self.value}{way.value}-endpoints"

    def one_of(self, way: FrontendMaps, count: int) -> str:
        """The chain that picks one of so many endpoints."""
        middle = "" if way is FrontendMaps.ADDRESS else "nodeport-"
        return f"{self.value}{middle}one-of-{count}"


def sticky_chain(service: ServicePlan, scope: PoolScope) -> str:
    """The chain that picks an endpoint of a service with affinity."""
    text = f"{_text(service)} {scope.name}"
    return f"affinity-{_hash(text)}-{scope.name.lower()}-{_text(service)}"[:MAX_NAME_LENGTH]


def endpoint_chain(service: ServicePlan, endpoint: PoolEndpoint) -> str:
    """The chain of one endpoint of a service with affinity."""
    place = f"{endpoint.address}/{endpoint.port}".replace(":", ".")
    return f"endpoint-{_hash(f'{_text(service)} {place}')}-{_text(service)}__{place}"[:MAX_NAME_LENGTH]


def client_number(service: ServicePlan, endpoint: PoolEndpoint, seconds: int) -> int:
    """Number of 32 bits in the key of an endpoint's clients, the same after a restart.

    It depends on the timeout, so that entries with an old one do not match (``affinity.timeout-change.followed``).
    If two endpoints ever have the same number, a client of one is taken for one of the other.
    """
    text = f"{_text(service)} {endpoint.address} {endpoint.port} {seconds}"
    return int.from_bytes(_digest(text)[:4], "big")


def _text(service: ServicePlan) -> str:
    name = service.name
    return f"{name.namespace}/{name.name}/{service.protocol.value.lower()}/{name.port}"


def _hash(text: str) -> str:
    return base64.b32encode(_digest(text)[:5]).decode()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
