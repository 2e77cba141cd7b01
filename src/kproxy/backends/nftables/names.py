"""Names of the chains, sets and maps.  Those kube-proxy has too keep its names (``nft.maps``, ``nft.chains``)."""

from __future__ import annotations

import base64
import enum
import hashlib
from typing import TYPE_CHECKING

from kproxy.backends.nftables.rules import FRONTEND, NODE_PORT, Key

if TYPE_CHECKING:
    from kproxy.plan import Endpoint, Scope, ServicePlan

SERVICES = "services"
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
HAIRPIN = "hairpin-connections"
FIREWALL_IPS = "firewall-ips"
FIREWALL_SOURCES = "firewall-sources"

LONGEST = 240
"""Characters of a name that are kept; the kernel takes 255."""


class Way(enum.Enum):
    """How a service is asked for: by an address of its own or by a node port.

    Each has its own maps, since they are asked different questions.
    """

    ADDRESS = "service"
    NODE_PORT = "nodeport"

    @property
    def key(self) -> Key:
        """What of a packet says which frontend it is for."""
        return FRONTEND if self is Way.ADDRESS else NODE_PORT

    @property
    def plural(self) -> str:
        """How kube-proxy ends the names of its maps."""
        return "ips" if self is Way.ADDRESS else "nodeports"

    @property
    def policies(self) -> str:
        """The map from external frontends to the chain of their traffic policy."""
        return f"external-{self.plural}"

    @property
    def unserved(self) -> str:
        """The map from frontends without endpoints to what is done with their packets."""
        return "no-endpoint-services" if self is Way.ADDRESS else "no-endpoint-nodeports"

    @property
    def cluster(self) -> str:
        """The chain for external traffic policy Cluster."""
        return "external-cluster" if self is Way.ADDRESS else "nodeport-cluster"

    @property
    def local(self) -> str:
        """The chain for external traffic policy Local."""
        return "external-local" if self is Way.ADDRESS else "nodeport-local"


class Choice(enum.Enum):
    """Which of a frontend's pools: its own, or the one that a Local policy's exceptions use."""

    POOL = ""
    SHORTCUT = "shortcut-"

    def dispatch(self, way: Way) -> str:
        """The map from frontends to the chain that picks an endpoint."""
        return f"{self.value or 'service-'}{way.plural}"

    def endpoints(self, way: Way) -> str:
        """The map from frontend and number to endpoint."""
        return f"{self.value}{way.value}-endpoints"

    def one_of(self, way: Way, count: int) -> str:
        """The chain that picks one of so many endpoints."""
        middle = "" if way is Way.ADDRESS else "nodeport-"
        return f"{self.value}{middle}one-of-{count}"


def identity(service: ServicePlan) -> str:
    """``namespace/name/tcp/port``, with a hash before it that keeps it unique when it is cut."""
    name = service.name
    text = f"{name.namespace}/{name.name}/{service.protocol.value.lower()}/{name.port}"
    return f"{_hash(text)}-{text}"[:LONGEST]


def sticky_chain(service: ServicePlan, scope: Scope) -> str:
    """The chain, and the map of its endpoints, of a service with affinity."""
    return f"affinity-{scope.name.lower()}-{identity(service)}"[:LONGEST]


def endpoint_chain(service: ServicePlan, endpoint: Endpoint, seconds: int) -> str:
    """The chain of one endpoint of a service with affinity, and the set of its clients.

    Another time is another set: that of an existing one cannot be changed (``aff.timeout-change``).
    """
    name = service.name
    text = f"{name.namespace}/{name.name}/{service.protocol.value.lower()}/{name.port}"
    place = f"{endpoint.address}/{endpoint.port}".replace(":", ".")
    return f"affinity-{_hash(f'{text} {place} {seconds}')}-{text}__{place}"[:LONGEST]


def _hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:5]).decode()
