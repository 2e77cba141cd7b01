"""kube-proxy's chain names: fixed ones, and those derived from a service port.

Kept because operators and tools know them (behaviours ``ipt.chains.*``, ``ipt.chain-names``).  Pure.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
from typing import TYPE_CHECKING

from kproxy.proxy.backends.xtables import names as xtables
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import PoolScope

if TYPE_CHECKING:
    from kproxy.proxy.backends.xtables.rules import ChainName
    from kproxy.proxy.plan import ServicePlan

SERVICES = xtables.SERVICES
EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS = "KUBE-NODEPORTS"
PROXY_FIREWALL = xtables.PROXY_FIREWALL
FORWARD = xtables.FORWARD
POSTROUTING = xtables.POSTROUTING
MARK_MASQUERADE = xtables.MARK_MASQUERADE
FIREWALL = "KUBE-FIREWALL"
"""The kubelet writes to it too: we add our rule, and never flush or delete it (``cleanup.nothing-left``)."""

CANARY = "KUBE-PROXY-CANARY"
"""Empty chain in every table; its absence means that another process flushed our rules (``rules.removed-by-another.restored``)."""

TRIAL = "KUBE-PROXY-TRIAL"
"""Chain to which rules are written to see if the kernel takes them; removed at once, or, where that fails, with the next write of everything."""

POOL_PREFIX = {PoolScope.CLUSTER: "KUBE-SVC-", PoolScope.LOCAL: "KUBE-SVL-"}
EXTERNAL_PREFIX = "KUBE-EXT-"
SOURCE_RANGES_PREFIX = "KUBE-FW-"
ENDPOINT_PREFIX = "KUBE-SEP-"
GROUP_DIGITS = 2
"""Digits that names of groups of endpoints may have: a chain's name has 28 characters, of which a pool's takes 25."""

DERIVED_PREFIXES = (*POOL_PREFIX.values(), EXTERNAL_PREFIX, SOURCE_RANGES_PREFIX, ENDPOINT_PREFIX)


class SharedChain(enum.Enum):
    """A chain to which every service port may add rules; the value is its table, name, and the prefix of groups' names.

    With many rules it is the root of a tree (``dispatch_tree``), whose chains have names such as ``KUBE-SVC-10.96.0.0/14``.
    All prefixes are of chains derived from service ports: kube-proxy, and an earlier version of this proxy, take
    such chains in nat for those of Services that are gone, and delete them when they take over or clean up.
    """

    NAT_SERVICES = (TableName.NAT, SERVICES, POOL_PREFIX[PoolScope.CLUSTER])
    NAT_NODE_PORTS = (TableName.NAT, NODE_PORTS, POOL_PREFIX[PoolScope.CLUSTER])
    FILTER_SERVICES = (TableName.FILTER, SERVICES, POOL_PREFIX[PoolScope.CLUSTER])
    FILTER_EXTERNAL = (TableName.FILTER, EXTERNAL_SERVICES, EXTERNAL_PREFIX)
    FILTER_FIREWALL = (TableName.FILTER, PROXY_FIREWALL, SOURCE_RANGES_PREFIX)

    @property
    def table(self) -> TableName:
        """The table that holds it."""
        return self.value[0]

    @property
    def chain(self) -> ChainName:
        """Its name in the table."""
        return self.value[1]

    @property
    def group_prefix(self) -> str:
        """Beginning of the names of the chains of its tree."""
        return self.value[2]


OWN_CHAINS = {
    TableName.MANGLE: (CANARY,),
    TableName.NAT: (CANARY, SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQUERADE),
    TableName.FILTER: (CANARY, SERVICES, EXTERNAL_SERVICES, NODE_PORTS, PROXY_FIREWALL, FORWARD),
}
"""The chains of fixed name that are ours alone, and always there."""


_PAIRS = tuple(map("".join, itertools.product("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", repeat=2)))
"""Two digits of base32 (RFC 4648) for ten bits: half the time of `base64.b32encode`, and every endpoint has a name."""


def identity(service: ServicePlan) -> str:
    """Text that the names of a service port's chains are derived from: ``namespace/name:porttcp``."""
    return f"{service.name}{service.protocol.value.lower()}"


def name_hash(text: str) -> str:
    """First 16 characters of the base32 of the SHA-256 of ``text`` (behaviour ``ipt.chain-names``)."""
    bits = int.from_bytes(hashlib.sha256(text.encode()).digest()[:10])
    return (
        f"{_PAIRS[bits >> 70]}{_PAIRS[bits >> 60 & 1023]}{_PAIRS[bits >> 50 & 1023]}{_PAIRS[bits >> 40 & 1023]}"
        f"{_PAIRS[bits >> 30 & 1023]}{_PAIRS[bits >> 20 & 1023]}{_PAIRS[bits >> 10 & 1023]}{_PAIRS[bits & 1023]}"
    )


def group_of_endpoints(pool: ChainName, digits: str) -> ChainName:
    """The chain that chooses among those endpoints of a pool whose chains' names begin with ``digits`` after the prefix."""
    return f"{pool}-{digits}"


def is_own(table: TableName, name: ChainName) -> bool:
    """True for a chain that is ours alone, wanted or left behind."""
    return name in OWN_CHAINS[table] or name == TRIAL or is_derived(name)


def is_derived(name: ChainName) -> bool:
    """True for a chain derived from service ports: ours to delete when it is no longer wanted."""
    return name.startswith(DERIVED_PREFIXES)
