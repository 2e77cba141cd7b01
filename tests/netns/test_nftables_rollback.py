"""Back to kube-proxy without a pause: the kernel that has our table takes kube-proxy's first transaction.

Both call their table ``kube-proxy``; a set of the same name but of another type would make the kernel refuse all of it.
Declarations as kube-proxy 1.36 makes them, observed on a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kproxy.lab import namespaces
from kproxy.linux import host
from kproxy.linux.host import HostError
from kproxy.model.network import Family
from kproxy.proxy.backends.nftables.kernel import NftablesKernel
from tests.support.numbered_plans import numbered, plan

BASE_CHAINS = {
    "filter-prerouting-pre-dnat": "type filter hook prerouting priority -110",
    "filter-output-pre-dnat": "type filter hook output priority -110",
    "filter-input": "type filter hook input priority 0",
    "filter-forward": "type filter hook forward priority 0",
    "filter-output": "type filter hook output priority 0",
    "nat-prerouting": "type nat hook prerouting priority -100",
    "nat-output": "type nat hook output priority -100",
    "nat-postrouting": "type nat hook postrouting priority 100",
}
CHAINS = """
cluster-ips-check firewall-check masquerading nodeport-endpoints-check reject-chain service-endpoints-check services
"""
SETS = {
    "cluster-ips": "ADDRESS",
    "nodeport-ips": "ADDRESS",
    "hairpin-connections": "ADDRESS . ADDRESS . inet_proto . inet_service",
}
MAPS = {
    "no-endpoint-nodeports": "inet_proto . inet_service",
    "service-nodeports": "inet_proto . inet_service",
    "no-endpoint-services": "ADDRESS . inet_proto . inet_service",
    "service-ips": "ADDRESS . inet_proto . inet_service",
    "firewall-ips": "ADDRESS . inet_proto . inet_service",
}
KEYWORDS = {Family.IPV4: ("ip", "ipv4_addr"), Family.IPV6: ("ip6", "ipv6_addr")}


def first_transaction(family: Family) -> str:
    """Declares everything, and empties it."""
    word, address = KEYWORDS[family]
    table = f"{word} kube-proxy"
    lines = [f"add table {table}"]
    lines += [f"add chain {table} {name} {{ {hook} ; }}" for name, hook in BASE_CHAINS.items()]
    lines += [f"add chain {table} {name}" for name in CHAINS.split()]
    lines += [f"flush chain {table} {name}" for name in (*BASE_CHAINS, *CHAINS.split())]
    lines += [f"add set {table} {name} {{ type {key} ; }}" for name, key in SETS.items()]
    lines += [f"add map {table} {name} {{ type {key} : verdict ; }}" for name, key in MAPS.items()]
    lines += [f"flush set {table} {name}" for name in SETS]
    lines += [f"flush map {table} {name}" for name in MAPS]
    return "\n".join(lines).replace("ADDRESS", address) + "\n"


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def kernel(request: pytest.FixtureRequest) -> Iterator[NftablesKernel]:
    """Of a namespace that has our table."""
    namespace = namespaces.create_namespace("rollback")
    with namespace.entered():
        made = NftablesKernel(request.param)
        made.apply(plan(request.param, numbered(request.param, 1, 1, 2)))
        yield made
    namespace.close()


def listed(family: Family) -> str:
    return host.run_tool(("nft", "list", "table", KEYWORDS[family][0], "kube-proxy"))


def hooks(family: Family) -> set[str]:
    return set(re.findall(r"chain (\S+) \{\n\s+type \w+ hook", listed(family)))


def nft(text: str) -> None:
    host.run_tool(("nft", "-f", "-"), stdin=[text.encode()])


def test_kube_proxy_may_take_its_table_back(kernel: NftablesKernel) -> None:
    family = kernel.family
    assert hooks(family) <= set(BASE_CHAINS), "it would not empty chains that it does not know"
    nft(first_transaction(family))
    assert hooks(family) == set(BASE_CHAINS)
    kernel.forget()
    kernel.apply(plan(family, numbered(family, 1, 1, 2)))
    assert "firewall-ips" not in listed(family)


def test_a_set_of_another_type_would_be_refused(kernel: NftablesKernel) -> None:
    """Positive control."""
    with pytest.raises(HostError):
        nft(first_transaction(kernel.family).replace("firewall-ips", "cluster-ips"))
