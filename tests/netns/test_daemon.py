"""``kproxy run`` as a process on a real kernel: clean-up, preparation, and a node that changes its mode under traffic.

Sources: ``life.cleanup``, ``life.cleanup.stateless``, ``life.mode-switch``, ``life.events``, ``life.nodecidr-exit``,
``life.restart-keeps``, ``cfg.init-only``, ``ct.sysctls``, ``life.ip-forward`` in the catalogue of behaviours.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.binding.world import RestartProxy
from kproxy.conformance.case import DEFAULT, Apply, case, pods
from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.lab import namespaces
from kproxy.lab.apiserver import ResourceKind
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import Xtables
from kproxy.lab.topology import LAB, NODES
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables.kernel import IptablesKernel, Tools, Variant, find_tools, leftovers
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.nftables.kernel import NftablesKernel
from kproxy.proxy.backends.xtables.kernel import leftovers as xtables_leftovers
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.sync.dataplane import open_dataplane, remove_all_modes
from tests.support.constant_rate import nothing_was_lost
from tests.support.continuity import WEB, busy_lab
from tests.support.numbered_plans import numbered, plan

COMMANDS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}

FOREIGN = """
*filter
:FOREIGN - [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -p tcp -j FOREIGN
-A FOREIGN -p tcp -j ACCEPT
COMMIT
*nat
-A POSTROUTING -o foreign0 -j MASQUERADE
COMMIT
"""
"""What is not ours: an administrator's rules, and the chain that the kubelet writes to."""

OF_IPVS_MODE = """
*filter
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A KUBE-PROXY-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port" -j KUBE-SOURCE-RANGES-FIREWALL
-A KUBE-SOURCE-RANGES-FIREWALL -j DROP
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-SERVICES -m comment --comment "Kubernetes service lb portal" -j KUBE-LOAD-BALANCER
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
COMMIT
"""
"""Chains and jumps as a kube-proxy in ipvs mode leaves them; names by ``ipvs.filter`` and kube-proxy 1.36 on a node."""


class Node:
    """A network namespace with a lock of its own, where commands are run."""

    def __init__(self, namespace: Namespace, lock: Path) -> None:
        self.namespace = namespace
        self.lock = {"XTABLES_LOCKFILE": str(lock)}

    def run(self, *arguments: str, **options: Any) -> str:  # noqa: ANN401 - subprocess's
        return self.namespace.run(arguments, **options)

    def kproxy(self, *arguments: str, by: Sequence[str] = ()) -> tuple[int, str]:
        """Exit status and log of ``kproxy run``; ``by`` is a program that starts it with fewer rights."""
        process = self.namespace.start(
            [*by, sys.executable, "-m", "kproxy", "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        log, _ = process.communicate(timeout=60)
        return process.returncode, log.decode()

    def restore(self, family: Family, variant: Variant, text: str) -> None:
        self.run(f"{COMMANDS[family]}-{variant.value}-restore", "--noflush", stdin=text)

    def rules(self) -> dict[str, str]:
        """Everything both variants of both families and nft show, without counters and dates."""
        saved = {
            f"{command}-{variant.value}": self._saved(f"{command}-{variant.value}-save")
            for command in COMMANDS.values()
            for variant in Variant
        }
        return {**saved, "nft": self.run("nft", "list", "tables")}

    def _saved(self, command: str) -> str:
        lines = self.run(command).splitlines()
        return "\n".join(line.split(" [")[0] for line in lines if not line.startswith("#"))

    def sysctl(self, name: str) -> str:
        return self.namespace.read(f"/proc/sys/net/{name}").strip()

    def leave_iptables(self, family: Family, variant: Variant) -> None:
        with self.namespace.entered():
            kernel = IptablesKernel(find_tools(family, variant, self.lock))
            kernel.apply(plan(family, *(numbered(family, n, 1, 2) for n in range(1, 60))), Options())

    def leave_nftables(self, family: Family) -> None:
        with self.namespace.entered():
            NftablesKernel(family).apply(plan(family, numbered(family, 1, 1, 2)))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    namespace = namespaces.create_namespace("daemon")
    namespace.run(("ip", "link", "set", "lo", "up"))
    yield Node(namespace, tmp_path / "lock")
    namespace.close()


def kubernetes_chains(rules: dict[str, str]) -> set[str]:
    return {word for text in rules.values() for word in text.split() if word.lstrip(":").startswith("KUBE-")}


# ------------------------------------------------------------------------------- clean-up


def test_cleaning_a_clean_node_succeeds_and_makes_nothing(node: Node) -> None:
    assert node.kproxy("--cleanup") == (0, "")
    assert node.run("nft", "list", "ruleset") == ""
    for names in ("ip_tables_names", "ip6_tables_names"):
        assert node.namespace.read(f"/proc/thread-self/net/{names}") == ""


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("family", list(Family))
def test_what_iptables_mode_left_is_removed_and_nothing_else(
    node: Node, family: Family, variant: Variant
) -> None:
    node.leave_iptables(family, variant)
    node.restore(family, variant, FOREIGN)
    before = node.rules()
    status, log = node.kproxy("--cleanup")
    after = node.rules()
    assert status == 0, log
    assert "KUBE-SERVICES" in str(before)
    assert kubernetes_chains(after) == {":KUBE-FIREWALL", "KUBE-FIREWALL"}
    for line in FOREIGN.splitlines():
        assert line.startswith(":") or line in (*str(after).split("\\n"), "*filter", "*nat", "COMMIT", "")
    assert node.kproxy("--cleanup") == (0, "")


def test_what_all_modes_left_in_both_families_is_removed_at_once(node: Node) -> None:
    clean = node.rules()["nft"]
    for family in Family:
        for variant in Variant:
            node.leave_iptables(family, variant)
        node.leave_nftables(family)
    node.run("nft", "add table ip foreign")
    assert {"table ip kube-proxy", "table ip6 kube-proxy"} <= set(node.rules()["nft"].splitlines())
    status, log = node.kproxy("--cleanup")
    assert status == 0, log
    after = node.rules()
    ours = {
        "KUBE-FIREWALL",
        ":KUBE-FIREWALL",
    }  # with our guard against martians: it is the kubelet's to delete
    assert kubernetes_chains(after) <= ours
    assert "kube-proxy" not in after["nft"]
    assert "table ip foreign" in after["nft"]
    assert clean == ""


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("family", list(Family))
def test_what_a_kube_proxy_in_ipvs_mode_left_is_removed(node: Node, family: Family, variant: Variant) -> None:
    node.restore(family, variant, OF_IPVS_MODE)
    name, protocol = ("KUBE-CLUSTER-IP", "inet") if family is Family.IPV4 else ("KUBE-6-CLUSTER-IP", "inet6")
    for each in (name, "FOREIGN"):
        node.run("ipset", "create", each, "hash:ip,port", "family", protocol)
    assert kubernetes_chains(node.rules())
    status, log = node.kproxy("--cleanup")
    assert status == 0, log
    assert kubernetes_chains(node.rules()) == set()
    assert node.run("ipset", "-n", "list").split() == ["FOREIGN"]


def test_what_cannot_be_removed_is_reported_by_the_status_and_the_rest_goes(node: Node) -> None:
    node.leave_iptables(Family.IPV4, Variant.NFT)
    node.leave_nftables(Family.IPV6)
    node.run("iptables-nft", "-N", "FOREIGN")
    node.run("iptables-nft", "-A", "FOREIGN", "-j", "KUBE-FORWARD")
    status, log = node.kproxy("--cleanup")
    assert status == 1
    assert "not removed" in log
    assert "Traceback" not in log
    after = node.rules()
    assert "KUBE-FORWARD" in after["iptables-nft"]
    assert "KUBE-SERVICES" not in after["iptables-nft"].partition("*nat")[2].partition("COMMIT")[0]
    assert "table ip6 kube-proxy" not in after["nft"]


PORTMAP = """
*nat
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -s {pods} -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ
COMMIT
"""
"""What the CNI plugin portmap writes with ``externalSetMarkChain: KUBE-MARK-MASQ``, shortened (plugins/meta/portmap)."""


@pytest.mark.parametrize("block_chains", [1024, 16])
@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("family", list(Family))
def test_a_chain_that_another_program_uses_stays_and_all_else_goes(
    node: Node, family: Family, variant: Variant, block_chains: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more chains than go at once, too."""
    monkeypatch.setattr("kproxy.proxy.backends.xtables.kernel.tools.NFT_BLOCK_CHAINS", block_chains)
    node.leave_iptables(family, variant)
    pods = "10.244.0.0/24" if family is Family.IPV4 else "fd00:244::/64"
    node.restore(family, variant, PORTMAP.format(pods=pods))
    command = f"{COMMANDS[family]}-{variant.value}"
    with node.namespace.entered():
        problems = remove_all_modes()
    assert [problem.reason for problem in problems] == [Reason.BUSY]
    assert f"{command} -t nat" in str(problems[0])
    assert "chain KUBE-MARK-MASQ" in str(problems[0])
    assert "-A CNI-DN-0123456789abcdef01234 -s" in str(problems[0])
    after = node.rules()[command]
    assert kubernetes_chains({"": after}) <= {
        ":KUBE-MARK-MASQ",
        "KUBE-MARK-MASQ",
        ":KUBE-FIREWALL",
        "KUBE-FIREWALL",
    }
    assert "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000" in after, "the mark that the other relies on"
    assert "-j CNI-HOSTPORT-DNAT" in after
    node.run(command, "-t", "nat", "-F", "CNI-DN-0123456789abcdef01234")
    status, log = node.kproxy("--cleanup")
    assert status == 0, log
    assert kubernetes_chains(node.rules()) <= {":KUBE-FIREWALL", "KUBE-FIREWALL"}


def test_a_chain_that_stays_is_emptied_and_keeps_nothing_in_force(node: Node) -> None:
    node.leave_iptables(Family.IPV4, Variant.NFT)
    node.run("iptables-nft", "-t", "nat", "-N", "FOREIGN")
    node.run("iptables-nft", "-t", "nat", "-A", "FOREIGN", "-j", "KUBE-SERVICES")
    status, log = node.kproxy("--cleanup")
    assert status == 1
    assert "chain KUBE-SERVICES" in log
    assert "-A FOREIGN -j KUBE-SERVICES" in log
    kept = kubernetes_chains({"": node.rules()["iptables-nft"].partition("*nat")[2].partition("COMMIT")[0]})
    assert kept == {":KUBE-SERVICES", "KUBE-SERVICES"}
    assert "-A KUBE-" not in node.run("iptables-nft", "-t", "nat", "-S")


# ------------------------------------------------------------------------------- the other variant of the tools


def kernel_of(node: Node, family: Family, mode: str) -> None:
    """What a daemon does when it begins: its own rules, and then what others left."""
    with node.namespace.entered():
        open_dataplane(Configuration(mode=mode), family).apply(plan(family, numbered(family, 1, 1, 2)))


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize("family", list(Family))
def test_rules_in_the_unused_variant_go_when_a_daemon_begins(node: Node, family: Family, mode: str) -> None:
    """https://kubernetes.io/blog/2022/09/07/iptables-chains-not-api/ : both variants' rules are in force at once."""
    with node.namespace.entered():
        own = find_tools(family).variant
    other = next(variant for variant in Variant if variant is not own)
    node.leave_iptables(family, other)
    node.restore(family, other, FOREIGN)
    left = f"{COMMANDS[family]}-{other.value}"
    assert "KUBE-SVC-" in node.rules()[left]
    kernel_of(node, family, mode)
    after = node.rules()
    assert kubernetes_chains({"": after[left]}) == {":KUBE-FIREWALL", "KUBE-FIREWALL"}
    assert "-A INPUT -p tcp -j FOREIGN" in after[left], "what is not a proxy's stays"
    own_rules = after[f"{COMMANDS[family]}-{own.value}"]
    assert ("KUBE-SVC-" in own_rules) is (mode == "iptables"), "its own stand"


def without_tools(monkeypatch: pytest.MonkeyPatch, absent: Variant) -> None:
    """As in an image that has the other variant's tools only."""
    find = find_tools

    def found(family: Family, variant: Variant | None = None) -> Tools:
        if variant is absent:
            raise HostError(
                f"{COMMANDS[family]}-{absent.value} --version", "not installed", Reason.UNSUPPORTED
            )
        return find(family, variant or next(each for each in Variant if each is not absent))

    monkeypatch.setattr(leftovers, "find_tools", found)
    monkeypatch.setattr(xtables_leftovers, "find_tools", found)


def test_tables_that_cannot_be_read_here_are_a_warning_that_names_the_remedy(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_tools(monkeypatch, Variant.LEGACY)
    with node.namespace.entered():
        assert leftovers.remove_iptables(Family.IPV4) == ()
        assert caplog.messages == [], "no table of iptables-legacy, no rule"
        node.leave_iptables(Family.IPV4, Variant.LEGACY)
        assert leftovers.remove_other_variant(Family.IPV4) == ()
    (warned,) = caplog.records
    assert warned.levelname == "WARNING"
    assert "iptables-legacy-save | grep KUBE-" in warned.getMessage()


def test_chains_that_the_kernel_shows_but_no_tool_here_removes_are_not_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_tools(monkeypatch, Variant.NFT)
    with node.namespace.entered():
        assert leftovers.remove_iptables(Family.IPV4) == ()
        node.leave_iptables(Family.IPV4, Variant.NFT)
        (problem,) = leftovers.remove_iptables(Family.IPV4)
    assert "chains of a proxy stay" in str(problem)
    assert "iptables-nft-save | grep KUBE-" in str(problem)
    assert "KUBE-SVC-" in node.rules()["iptables-nft"]


def test_clean_up_without_the_right_to_change_the_network_fails_at_once_and_reports_what_is_missing(
    node: Node,
) -> None:
    node.leave_nftables(Family.IPV4)
    before, began = node.rules(), time.monotonic()
    without = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all")
    status, log = node.kproxy("--cleanup", by=(*without, "--inh-caps=-all", "--"))
    assert status == 1
    assert time.monotonic() - began < 20
    assert "CAP_NET_ADMIN" in log
    assert len(log.splitlines()) == 1, log
    assert node.rules() == before
    assert node.kproxy("--cleanup")[0] == 0
    assert node.rules() != before


def test_a_command_line_that_is_wrong_removes_nothing(node: Node) -> None:
    node.leave_nftables(Family.IPV4)
    before = node.rules()
    assert node.kproxy("--cleanup", "--oom-score-adj=2000")[0] == 1
    assert node.rules() == before
    assert node.kproxy("--cleanup")[0] == 0
    assert node.rules() != before


# ------------------------------------------------------------------------------- preparation

TIMEOUTS = {
    "--conntrack-tcp-timeout-established=1234s": ("netfilter/nf_conntrack_tcp_timeout_established", "1234"),
    "--conntrack-tcp-timeout-close-wait=56s": ("netfilter/nf_conntrack_tcp_timeout_close_wait", "56"),
    "--conntrack-udp-timeout=78s": ("netfilter/nf_conntrack_udp_timeout", "78"),
    "--conntrack-udp-timeout-stream=91s": ("netfilter/nf_conntrack_udp_timeout_stream", "91"),
    "--conntrack-tcp-be-liberal": ("netfilter/nf_conntrack_tcp_be_liberal", "1"),
}
SAME = ("--conntrack-max-per-core=0",)
"""The limit of tracked connections belongs to the machine: read-only in a network namespace."""


@pytest.mark.parametrize(("mode", "localnet"), [("iptables", "1"), ("nftables", "0")])
def test_preparation_sets_sysctls_and_writes_no_rule(node: Node, mode: str, localnet: str) -> None:
    forwarding = node.sysctl("ipv4/ip_forward")
    assert not {value for name, value in TIMEOUTS.values() if node.sysctl(name) == value}
    status, log = node.kproxy("--init-only", f"--proxy-mode={mode}", *SAME, *TIMEOUTS)
    assert status == 0, log
    assert {name: node.sysctl(name) for name, _ in TIMEOUTS.values()} == dict(TIMEOUTS.values())
    assert node.sysctl("ipv4/conf/all/route_localnet") == localnet
    assert node.sysctl("ipv4/ip_forward") == forwarding
    assert node.run("nft", "list", "ruleset") == ""


def test_zero_leaves_the_kernels_own_timeouts(node: Node) -> None:
    names = [name for name, _ in TIMEOUTS.values()]
    before = [node.sysctl(name) for name in names]
    zero = [flag.partition("=")[0] + "=0" for flag in TIMEOUTS if "timeout" in flag]
    assert node.kproxy("--init-only", *SAME, *zero)[0] == 0
    assert [node.sysctl(name) for name in names] == before


def test_a_setting_that_the_kernel_refuses_is_status_1(node: Node) -> None:
    status, log = node.kproxy("--init-only", "--conntrack-max-per-core=1", "--conntrack-min=12345")
    assert status == 1
    assert "nf_conntrack_max" in log
    assert "conntrack: {maxPerCore: 0, min: 0}" in log
    assert node.sysctl("netfilter/nf_conntrack_max") != "12345"


def test_ipvs_mode_is_prepared_where_the_kernel_has_it_and_refused_where_not(node: Node) -> None:
    status, log = node.kproxy("--init-only", "--proxy-mode=ipvs", *SAME)
    try:
        set_up = node.sysctl("ipv4/vs/conntrack")
    except FileNotFoundError:
        assert status == 1
        assert "cannot prepare the node" in log
        assert "Traceback" not in log
    else:
        assert (status, set_up, node.sysctl("ipv4/ip_forward")) == (0, "1", "1"), log


# ------------------------------------------------------------------------------- the running daemon


async def switch(bed: NetnsTestbed, mode: str) -> None:
    """Kill one proxy after the other and start it again in another mode; in between nodes run different ones."""
    bed.proxies.mode = mode
    for node in NODES:
        await bed.change([RestartProxy(node, ())])
        await bed.settle()


def left(bed: NetnsTestbed, node: str) -> tuple[bool, bool]:
    """Whether a node has rules of iptables mode, and of nftables mode."""
    inside = bed.lab.network[node]
    saved = "".join(
        inside.run((f"{command}-{variant.value}-save",))
        for command in COMMANDS.values()
        for variant in Variant
    )
    return "KUBE-SVC-" in saved, "kube-proxy" in inside.run(("nft", "list", "tables"))


async def eventually_left(bed: NetnsTestbed, expected: tuple[bool, bool]) -> None:
    for _ in range(100):
        if all(left(bed, node) == expected for node in NODES):
            return
        await asyncio.sleep(0.1)
    assert {node: left(bed, node) for node in NODES} == dict.fromkeys(NODES, expected)


@pytest.mark.parametrize("variant", list(Xtables))
def test_no_connection_is_lost_when_nodes_change_their_mode(variant: Xtables) -> None:
    async def there_and_back() -> None:
        async with busy_lab("iptables", variant) as (bed, world, clients):
            await clients.connect(20)
            assert all(left(bed, node) == (True, False) for node in NODES)
            await switch(bed, "nftables")
            await eventually_left(bed, (False, True))
            await bed.change(world.apply_step(Apply(WEB.replace(endpoints=pods("b1", "b2")))))
            await bed.settle()
            await switch(bed, "iptables")
            await eventually_left(bed, (True, False))
            await bed.change(world.apply_step(Apply(WEB.replace(endpoints=pods("a1", "b1")))))
            await bed.settle()
            await clients.connect(40)
            nothing_was_lost(await clients.finish(), at_least=60)

    asyncio.run(there_and_back())


def events(bed: NetnsTestbed) -> set[tuple[str, str, str]]:
    found = bed.server.store.documents(ResourceKind.EVENT)
    return {(event["regarding"]["name"], event["type"], event["reason"]) for event in found}


def test_a_daemon_announces_itself_and_leaves_its_rules_when_it_is_stopped() -> None:
    async def life() -> None:
        async with busy_lab("iptables", Xtables.NFT) as (bed, _, clients):
            assert events(bed) == {(name, "Normal", "Starting") for name in LAB.hostnames.values()}
            (stopped,) = bed.proxies._running.pop("a")
            stopped.signal(signal.SIGTERM)
            assert await asyncio.wait_for(stopped.wait(), 10) == 0
            await clients.connect(10)
            nothing_was_lost(await clients.finish(), at_least=10)
            assert left(bed, "a") == (True, False)

    asyncio.run(life())


def test_a_daemon_that_detects_by_its_nodes_networks_ends_when_they_change() -> None:
    async def change() -> None:
        profile = replace(DEFAULT, detect_mode="NodeCIDR")
        steady = case("daemon.nodecidr", "Nothing happens.", Apply(WEB), clauses=set())
        (instance, *_) = bind_cases([steady])
        async with opener(load_subject("kproxy"), "iptables", Xtables.NFT)(profile, [instance]) as bed:
            assert isinstance(bed, NetnsTestbed)
            await bed.settle()
            name = LAB.hostnames["a"]
            nodes = bed.server.store.documents(ResourceKind.NODE)
            (document,) = (node for node in nodes if node["metadata"]["name"] == name)
            bed.server.store.put(
                ResourceKind.NODE, {**document, "metadata": {"name": name, "labels": {"new": "1"}}}
            )
            await bed.settle()
            document["spec"]["podCIDRs"] = ["10.99.0.0/24"]
            bed.server.store.put(ResourceKind.NODE, document)
            (ended,) = bed.proxies._running.pop("a")
            assert await asyncio.wait_for(ended.wait(), 10) == 1
            assert "spec.podCIDRs" in bed.proxies.tail("a")
            assert left(bed, "a") == (True, False)
            bed.proxies.check()

    asyncio.run(change())


def test_the_namespace_would_show_rules_of_ours(node: Node) -> None:
    node.leave_iptables(Family.IPV4, Variant.LEGACY)
    assert "KUBE-SVC-" in node.rules()["iptables-legacy"]
    with pytest.raises(LabError):
        node.run("iptables-nft", "-S", "KUBE-SERVICES")
