"""What ipvs mode writes by our own bytes, read back by pyroute2: virtual servers, ipset members, the service device's addresses.

`tests/uml/test_ipvs.py` runs this in a guest.  pyroute2 shares no line with us, so a mistake in how we write and read cannot hide.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from pyroute2 import IPVS, IPRoute, IPSet, IPVSDest, IPVSService

from kproxy.conformance.testbeds import environment
from kproxy.lab import namespaces
from kproxy.lab.processes import xtables_directory
from kproxy.linux import host
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs.kernel import IpvsKernel, IpvsSettings
from kproxy.proxy.backends.ipvs.kernel.ipsets import read_members
from kproxy.proxy.backends.ipvs.names import DEVICE, set_name
from kproxy.proxy.plan import Exposure, Plan
from tests.support.plans import frontend, plan_of, pool, service

NUMBER = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
CLUSTER_IP = {Family.IPV4: "10.96.0.1", Family.IPV6: "fd00:96::1"}
EXTERNAL = {Family.IPV4: "192.0.2.9", Family.IPV6: "2001:db8::9"}
NODE = {Family.IPV4: "192.0.2.7", Family.IPV6: "2001:db8::7"}
PODS = {Family.IPV4: ("10.0.0.1", "10.0.0.2"), Family.IPV6: ("fd00:10::1", "fd00:10::2")}


@pytest.fixture(autouse=True)
def node(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    socket.socket(socket.AF_INET6).close()
    links = xtables_directory(tmp_path_factory.mktemp("tools"), environment.iptables_variant("auto"))
    monkeypatch.setenv("PATH", f"{links}:/usr/sbin:/usr/bin:/sbin:/bin")
    namespace = namespaces.create_namespace("read-back")
    with namespace.entered():
        lines = (
            "link set lo up",
            "link add uplink type dummy",
            f"addr add {NODE[Family.IPV4]}/24 dev uplink",
            f"addr add {NODE[Family.IPV6]}/64 dev uplink nodad",
        )
        host.run_tool(("ip", "-batch", "-"), ["\n".join(lines).encode()])
        yield
    namespace.close()


def plan(family: Family, *pods: str) -> Plan:
    joint = ":" if family is Family.IPV4 else "#"
    reached = pool(*(f"{pod}{joint}8080" for pod in pods))
    return plan_of(
        service(
            frontend(Exposure.CLUSTER_IP, CLUSTER_IP[family], 80, reached),
            frontend(Exposure.EXTERNAL_IP, EXTERNAL[family], 80, reached),
            affinity=60,
        ),
        family=family,
        detector=None,
    )


def servers(family: Family) -> dict[tuple[str, int], tuple[str, int, int, int]]:
    """Virtual servers as pyroute2 lists them: scheduler, persistence in seconds, netmask or prefix, protocol."""
    with IPVS() as reader:
        found = [message.get_attr("IPVS_CMD_ATTR_SERVICE") for message in reader.service("dump")]
    return {
        (s.get_attr("IPVS_SVC_ATTR_ADDR"), s.get_attr("IPVS_SVC_ATTR_PORT")): (
            s.get_attr("IPVS_SVC_ATTR_SCHED_NAME"),
            s.get_attr("IPVS_SVC_ATTR_TIMEOUT"),
            s.get_attr("IPVS_SVC_ATTR_NETMASK"),
            s.get_attr("IPVS_SVC_ATTR_PROTOCOL"),
        )
        for s in found
        if s.get_attr("IPVS_SVC_ATTR_AF") == NUMBER[family]
    }


def destinations(family: Family, address: str) -> dict[str, int]:
    """Weights of a virtual server's destinations, by address."""
    key = IPVSService(af=NUMBER[family], addr=address, port=80, protocol=socket.IPPROTO_TCP)
    with IPVS() as reader:
        found = [IPVSDest.from_message(m) for m in reader.dest("dump", service=key)]
    return {one["addr"]: one["weight"] for one in found}


def device_addresses(family: Family) -> set[str]:
    with IPRoute() as reader:
        (index,) = reader.link_lookup(ifname=DEVICE)
        found = [m.get_attr("IFA_ADDRESS") for m in reader.get_addr(family=NUMBER[family], index=index)]
    return {address for address in found if not ip_address(address).is_link_local}


def members(family: Family) -> set[tuple[str, str]]:
    """Members of ipsets as pyroute2 lists them: set, and the first address."""
    found = set()
    with IPSet() as reader:
        for message in reader.list():
            name = message.get_attr("IPSET_ATTR_SETNAME")
            for entry in message.get_attr("IPSET_ATTR_ADT").get_attrs("IPSET_ATTR_DATA"):
                ip = entry.get_attr("IPSET_ATTR_IP_FROM")
                value = ip and ip.get_attr(f"IPSET_ATTR_IPADDR_{family.value.upper()}")
                if value:
                    found.add((name, value))
    return found


@pytest.mark.parametrize("family", [Family.IPV4, Family.IPV6], ids=lambda family: family.value)
def test_what_is_written_is_what_another_reader_finds(family: Family) -> None:
    machine = IpvsKernel(family, IpvsSettings())
    assert machine.apply(plan(family, *PODS[family])).refused is None
    found = servers(family)
    assert set(found) == {(CLUSTER_IP[family], 80), (EXTERNAL[family], 80)}
    for scheduler, timeout, _, protocol in found.values():
        assert (scheduler, timeout, protocol) == ("rr", 60, socket.IPPROTO_TCP)
    assert destinations(family, CLUSTER_IP[family]) == dict.fromkeys(PODS[family], 1)
    assert device_addresses(family) == {CLUSTER_IP[family], EXTERNAL[family]}
    ours = {(set_name(m.set, family), m.element.partition(",")[0]) for m in read_members(family)}
    assert members(family) == ours
    assert {address for _, address in ours} >= {CLUSTER_IP[family], EXTERNAL[family]}
    assert machine.apply(plan(family, PODS[family][0])).refused is None
    assert destinations(family, CLUSTER_IP[family]).get(PODS[family][1], 0) == 0
    machine.close()
