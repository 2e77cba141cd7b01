"""nftables mode against the real kernel, in namespaces of each test's own, both families."""

import select
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.netlink import NetlinkFlag, attribute, netfilter_header
from kproxy.linux.nft_monitor import NftMonitor
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.commands import (
    AddChain,
    AddCollection,
    AddElements,
    AddRules,
    AddTable,
    Command,
    format_command,
)
from kproxy.proxy.backends.nftables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.nftables.diff import Clients, Leftovers, diff
from kproxy.proxy.backends.nftables.kernel import (
    NftablesKernel,
    applier,
    check_kernel,
    machine_options,
    messages,
    remove_table,
)
from kproxy.proxy.backends.nftables.kernel.batch import BatchError, Nftables
from kproxy.proxy.backends.nftables.render import Renderer
from kproxy.proxy.backends.nftables.static_rules import Options
from kproxy.proxy.plan import (
    DetectByCIDR,
    DetectByInterface,
    DetectByInterfacePrefix,
    Exposure,
    LocalDetector,
    NodePorts,
    Plan,
    Pool,
    PoolScope,
    ServicePlan,
)
from tests.support.nftables_table import SimulatedTable
from tests.support.plans import frontend, plan_of, plans, pool, service


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def namespace() -> Iterator[Namespace]:
    own = namespaces.create_namespace("nftables")
    with own.entered():
        yield own
    own.close()


def listed(family: Family) -> str:
    return host.run_tool(("nft", "list", "table", Renderer(family).family_keyword, "kube-proxy"))


def address(family: Family, number: int) -> str:
    return f"10.96.0.{number}" if family is Family.IPV4 else f"fd00:96::{number:x}"


def backends(family: Family, *numbers: int, scope: PoolScope = PoolScope.CLUSTER) -> Pool:
    texts = [f"10.0.0.{n}:80" if family is Family.IPV4 else f"fd00:10::{n:x}#80" for n in numbers]
    return pool(*texts, scope=scope)


def numbered(family: Family, number: int, *endpoints: int, affinity: int | None = None) -> ServicePlan:
    reached = backends(family, *endpoints)
    return service(
        frontend(Exposure.CLUSTER_IP, address(family, number), 80, reached),
        frontend(Exposure.NODE_PORT, None, 30000 + number, reached),
        name=f"ns/svc{number}:http",
        affinity=affinity,
    )


def plan(family: Family, *services: ServicePlan, detector: LocalDetector = None) -> Plan:
    return plan_of(*services, family=family, detector=detector)


def everything(family: Family, detector: LocalDetector, *, primary: bool) -> Plan:
    """One of each: exposures, policies, protocols, ranges, affinity, refusals."""
    far, near, nobody = backends(family, 1, 2, 3), backends(family, 1, scope=PoolScope.LOCAL), pool()
    ranges = (
        ("192.0.2.0/24", "198.51.100.7/32") if family is Family.IPV4 else ("fd00:1::/64", "fd00:2::1/128")
    )
    cidr = "10.96.0.0/16" if family is Family.IPV4 else "fd00:96::/112"
    services = (
        service(
            frontend(Exposure.CLUSTER_IP, address(family, 1), 80, far),
            frontend(Exposure.NODE_PORT, None, 30001, near, shortcut=far),
            frontend(
                Exposure.LOAD_BALANCER,
                address(family, 201),
                80,
                near,
                shortcut=far,
                sources=ranges,
                admit_self=True,
            ),
            name="ns/a:http",
        ),
        service(
            frontend(Exposure.CLUSTER_IP, address(family, 2), 53, far),
            frontend(Exposure.EXTERNAL_IP, address(family, 202), 53, far),
            protocol=Protocol.UDP,
            name="ns/b:dns",
        ),
        service(
            frontend(Exposure.CLUSTER_IP, address(family, 3), 80, nobody),
            frontend(Exposure.NODE_PORT, None, 30003, nobody),
            protocol=Protocol.SCTP,
            name="ns/c:sctp",
        ),
        service(
            frontend(Exposure.CLUSTER_IP, address(family, 4), 80, far),
            frontend(Exposure.NODE_PORT, None, 30004, near, shortcut=far),
            name="ns/d:http",
            affinity=60,
        ),
    )
    ports = NodePorts((ip_address(address(family, 250)),) if primary else None, localhost=False)
    written = plan_of(*services, family=family, node_ports=ports, detector=detector)
    return replace(written, service_cidrs=(ip_network(cidr),))


def wide(family: Family, v4: str, v6: str) -> IPv4Network | IPv6Network:
    return ip_network(v4 if family is Family.IPV4 else v6)


@pytest.mark.parametrize("kind", ["bytes", "bits", "none", "interface", "prefix"])
def test_the_bytes_we_send_are_the_rules_that_nft_makes_of_the_text(family: Family, kind: str) -> None:
    """Both encodings of one value, listed by nft: equal word for word, comments and types included."""
    detectors: dict[str, LocalDetector] = {
        "bytes": DetectByCIDR(wide(family, "10.0.0.0/8", "fd00:10::/64")),
        "bits": DetectByCIDR(wide(family, "10.128.0.0/9", "fd00:10::/49")),
        "none": None,
        "interface": DetectByInterface("cbr0"),
        "prefix": DetectByInterfacePrefix("veth"),
    }
    wanted = everything(family, detectors[kind], primary=kind == "bytes")
    NftablesKernel(family).apply(wanted)
    by_bytes = listed(family)
    host.run_tool(("nft", "-f", "-"), [str(diff(None, desired_state(wanted, Options()))).encode()])
    assert by_bytes == listed(family)
    assert by_bytes.count("elements = {") >= 10


def text_of(table: SimulatedTable) -> str:
    """A whole table as nft takes it.  (nft 1.0.6 cannot add a rule to a map of ``th dport`` that is there already.)"""
    commands: list[Command] = [AddTable()]
    commands += map(AddCollection, table.collections.values())
    commands += map(AddChain, table.chains.values())
    commands += map(AddRules, table.chains.values())
    commands += [
        AddElements(table.collections[name], tuple(found.items()))
        for name, found in table.elements.items()
        if found
    ]
    return "".join(
        f"{line}\n" for command in commands for line in format_command(command, Renderer(table.family))
    )


@given(history=st.lists(plans(), min_size=2, max_size=4))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_kernel_ends_with_what_the_model_of_the_table_ends_with(history: list[Plan]) -> None:
    ours, theirs = namespaces.create_namespace("ours"), namespaces.create_namespace("theirs")
    kernel, model = NftablesKernel(Family.IPV4), SimulatedTable(Family.IPV4)
    believed: DesiredState | None = None
    leftovers: Leftovers = {}
    try:
        for wanted in history:
            desired = desired_state(wanted, Options(), believed)
            transaction = diff(believed, desired, leftovers)
            model.apply(transaction)
            believed, leftovers = desired, transaction.leftovers
            with ours.entered():
                assert kernel.apply(wanted).refused is None
                by_bytes = listed(Family.IPV4)
            with theirs.entered():
                remove_table(Family.IPV4)
                host.run_tool(("nft", "-f", "-"), [text_of(model).encode()])
                assert by_bytes == listed(Family.IPV4)
    finally:
        ours.close()
        theirs.close()


GREP = {
    "chains": r"^\s*chain ",
    "rules": r"^\s*(dnat|goto|jump|ip6? |ct |meta |fib |reject|drop|masquerade|update|numgen|oifname|iifname)",
}
"""What ``grep -cE`` counts of a listing."""


def counts(family: Family) -> dict[str, int]:
    """As a person would: ``nft list table ip kube-proxy | grep -cE PATTERN``."""
    text = listed(family).encode()
    return {what: int(host.run_tool(("grep", "-cE", pattern), [text])) for what, pattern in GREP.items()}


def many(family: Family, services: int) -> Plan:
    """Cluster IPs with three endpoints each."""
    first = int(ip_address("172.30.0.0" if family is Family.IPV4 else "fd00:30::"))
    reached = backends(family, 1, 2, 3)
    made = type(ip_address(first))
    return plan(
        family,
        *(
            service(frontend(Exposure.CLUSTER_IP, str(made(first + i)), 80, reached), name=f"ns/svc{i}:http")
            for i in range(services)
        ),
    )


@pytest.mark.long
def test_ten_services_have_as_many_rules_and_chains_as_ten_thousand(family: Family) -> None:
    kernel = NftablesKernel(family)
    kernel.apply(many(family, 10))
    few = counts(family)
    kernel.apply(many(family, 10_000))
    text = listed(family)
    assert text.count(" . tcp . 80 . 2 : ") == 10_000, "all endpoints of the third place are there"
    assert counts(family) == few
    assert few["chains"] > 20
    assert few["rules"] > 30


def test_a_first_apply_replaces_what_an_earlier_run_or_another_proxy_left(family: Family) -> None:
    word = Renderer(family).family_keyword
    left = (
        f"table {word} kube-proxy {{\n set cluster-ips {{ type inet_service; }}\n"
        " chain service-OLD { counter drop\n }\n"
        " chain filter-input { type filter hook input priority 5; jump service-OLD\n }\n}"
    )
    host.run_tool(("nft", "-f", "-"), [left.encode()])
    wanted = plan(family, numbered(family, 1, 1))
    assert NftablesKernel(family).apply(wanted).rewritten
    assert "OLD" not in listed(family)
    assert "one-of-1" in listed(family)


def foreign_set_that_crashes_nft() -> None:
    """A set described in a way this nft does not understand, as newer ones make them (kubernetes#136786)."""

    def item(kind: int, value: bytes) -> bytes:
        return bytes((kind, len(value))) + value

    def number(value: int) -> bytes:
        return struct.pack("=I", value)

    field = item(0, number(7)) + item(1, item(0, number(14)) + item(1, number(9)))
    described = item(0, number(0)) + item(3, item(0, number(13)) + item(1, item(0, field) + item(1, field)))
    header, table = (
        netfilter_header(messages.NFPROTO[Family.IPV6]),
        attribute(1, messages.encode_string("foreign")),
    )
    parts = (
        attribute(2, messages.encode_string("new")),
        attribute(4, messages.encode_be32(8 << 6 | 8)),
        attribute(5, messages.encode_be32(32)),
        attribute(10, messages.encode_be32(1)),
        attribute(13, described),
    )
    with Nftables() as nftables:
        complaint = nftables.commit(
            [
                messages.BatchMessage(messages.NEW_TABLE, NetlinkFlag.CREATE, header + table),
                messages.BatchMessage(
                    messages.NEW_SET, NetlinkFlag.CREATE, b"".join((header, table, *parts))
                ),
            ]
        )
    assert complaint is None


def test_a_foreign_table_that_crashes_nft_stops_us_in_nothing(family: Family) -> None:
    foreign_set_that_crashes_nft()
    with pytest.raises(HostError):
        host.run_tool(("nft", "list", "ruleset"))
    kernel = NftablesKernel(family)
    kernel.apply(plan(family, numbered(family, 1, 1), numbered(family, 2, 1, affinity=60)))
    assert not kernel.apply(
        plan(family, numbered(family, 1, 1, 2), numbered(family, 2, 2, affinity=60))
    ).rewritten
    assert kernel.find_drift() == ()
    kernel.forget()
    assert kernel.apply(plan(family)).rewritten
    kernel.cleanup()


@pytest.mark.parametrize(
    ("damage", "noticed"),
    [
        ("delete table {} kube-proxy", "table deleted kube-proxy by nft (PID "),
        ("delete table {0} kube-proxy\nadd table {0} kube-proxy", "table made kube-proxy by nft (PID "),
        ("flush chain {} kube-proxy nat-prerouting", "rule deleted from nat-prerouting by nft (PID "),
        (
            "flush chain {0} kube-proxy filter-output\ndelete chain {0} kube-proxy filter-output",
            "chain deleted",
        ),
        ("flush table {} kube-proxy", "rule deleted from"),
        ("flush map {} kube-proxy service-ips", "element deleted from service-ips"),
        ("delete element {} kube-proxy service-ips {{ %s . tcp . 80 }}", "element deleted from service-ips"),
        ("insert rule {} kube-proxy nat-prerouting accept", "rule added to nat-prerouting"),
        ("add set {} kube-proxy more {{ type inet_service; }}", "set made more"),
    ],
)
def test_what_another_program_changes_is_noticed_and_restored(
    family: Family, damage: str, noticed: str
) -> None:
    damage = damage.replace("%s", address(family, 1))
    kernel = NftablesKernel(family)
    assert kernel.find_drift() == (), "before the first apply there is nothing to miss"
    wanted = plan(family, numbered(family, 1, 1))
    kernel.apply(wanted)
    before = listed(family)
    assert kernel.find_drift() == ()
    host.run_tool(("nft", "-f", "-"), [damage.format(Renderer(family).family_keyword).encode()])
    assert noticed in " ".join(kernel.find_drift())
    kernel.forget()
    kernel.apply(wanted)
    assert listed(family) == before
    assert kernel.find_drift() == ()


def test_what_is_changed_while_all_is_written_is_noticed(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall's ``flush ruleset`` at boot, just after the table was written and before others' changes are reported."""
    kernel = NftablesKernel(family)
    wanted = plan(family, numbered(family, 1, 1))
    kernel.apply(wanted)
    commit = Nftables.commit

    def commit_and_flush(nftables: Nftables, batch: Iterable[messages.BatchMessage]) -> BatchError | None:
        refused = commit(nftables, batch)
        host.run_tool(("nft", "flush", "ruleset"))
        return refused

    for _ in range(2):
        kernel.forget()
        with monkeypatch.context() as flushing:
            flushing.setattr(Nftables, "commit", commit_and_flush)
            kernel.apply(wanted)
        assert kernel.find_drift() != ()
        assert kernel.find_drift() == ()
    for other_program in (True, False):
        kernel.forget()
        if other_program:
            host.run_tool(("nft", "add", "table", "ip", "other"))
        kernel.apply(wanted)
        assert kernel.find_drift() == ()
        assert address(family, 1) in listed(family)


def test_what_was_changed_before_all_is_written_again_is_not_missed(family: Family) -> None:
    kernel = NftablesKernel(family)
    wanted = plan(family, numbered(family, 1, 1))
    kernel.apply(wanted)
    with NftMonitor.paused():
        host.run_tool(("nft", "flush", "ruleset"))
    kernel.forget()
    kernel.apply(wanted)
    assert kernel.find_drift() == ()
    with NftMonitor.paused():
        host.run_tool(("nft", "flush", "ruleset"))
    assert kernel.find_drift() != (), "control"


def test_the_kernels_reports_of_others_changes_wake_and_ours_do_not(family: Family) -> None:
    kernel = NftablesKernel(family)
    assert kernel.notifiers() == ()
    kernel.apply(plan(family, numbered(family, 1, 1)))
    assert not kernel.apply(plan(family, numbered(family, 1, 2))).rewritten
    assert select.select(kernel.notifiers(), (), (), 0)[0] == []
    table = Renderer(family).family_keyword
    host.run_tool(("nft", "add", "rule", table, "kube-proxy", "nat-prerouting", "accept"))
    assert select.select(kernel.notifiers(), (), (), 0)[0] == list(kernel.notifiers())
    assert kernel.find_drift() != ()
    assert select.select(kernel.notifiers(), (), (), 0)[0] == []


def test_changes_of_other_tables_are_none_of_ours(family: Family) -> None:
    kernel = NftablesKernel(family)
    kernel.apply(plan(family, numbered(family, 1, 1)))
    host.run_tool(("nft", "add", "table", "ip", "other"))
    assert kernel.find_drift() == ()
    assert kernel.find_drift() == ()


def test_a_look_costs_next_to_nothing(family: Family) -> None:
    kernel = NftablesKernel(family)
    kernel.apply(plan(family, *(numbered(family, i, 1, 2) for i in range(1, 200))))
    started = time.process_time()
    for _ in range(100):
        assert kernel.find_drift() == ()
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize(
    "damage", ["delete element {} kube-proxy service-ips {{ {} . tcp . 80 }}", "delete table {} kube-proxy"]
)
def test_a_refused_change_is_written_as_a_whole_at_once(family: Family, damage: str) -> None:
    kernel = NftablesKernel(family)
    kernel.apply(plan(family, numbered(family, 1, 1), numbered(family, 2, 1)))
    host.run_tool(
        ("nft", "-f", "-"), [damage.format(Renderer(family).family_keyword, address(family, 1)).encode()]
    )
    wanted = plan(family, numbered(family, 2, 1))
    applied = kernel.apply(wanted)
    assert applied.rewritten
    assert applied.refused is not None
    assert "element" in applied.refused
    assert f"{address(family, 2)} . tcp . 80" in listed(family)
    assert f"{address(family, 1)} . tcp . 80" not in listed(family)
    assert not kernel.apply(plan(family, numbered(family, 2, 2))).rewritten


def test_what_the_kernel_refuses_altogether_is_an_error_and_is_tried_anew(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = NftablesKernel(family)
    wanted = plan(family, numbered(family, 1, 1))
    with monkeypatch.context() as broken:
        broken.setattr(messages, "TABLE", "x" * 300)
        with pytest.raises(HostError, match="add table"):
            kernel.apply(wanted)
    assert kernel.apply(wanted).rewritten
    assert "one-of-1" in listed(family)


def known_clients(family: Family) -> Clients:
    return NftablesKernel(family).affinity_clients()


def test_clients_go_on_sticking_when_the_table_is_replaced(family: Family) -> None:
    """Behaviours ``aff.clientip``, ``life.restart-keeps``."""
    wanted = plan(family, numbered(family, 1, 1, 2, affinity=600))
    NftablesKernel(family).apply(wanted)
    endpoint = wanted.services[0].frontends[0].pool.endpoints[1]
    number = names.client_number(wanted.services[0], endpoint, 600)
    client = "192.0.2.7" if family is Family.IPV4 else "2001:db8::7"
    entry = f"add element {Renderer(family).family_keyword} kube-proxy affinity-clients {{ {client} . {number} timeout 600s }}"
    host.run_tool(("nft", "-f", "-"), [entry.encode()])
    assert set(known_clients(family)) == {(ip_address(client), number)}
    assert NftablesKernel(family).apply(wanted).rewritten
    (left,) = known_clients(family).values()
    assert 590_000 < left <= 600_000


def test_cleanup_leaves_nothing_and_does_nothing_where_nothing_is(family: Family) -> None:
    remove_table(family)
    NftablesKernel(family).apply(plan(family, numbered(family, 1, 1)))
    host.run_tool(("nft", "add", "table", "ip", "other"))
    remove_table(family)
    assert host.run_tool(("nft", "list", "tables")) == "table ip other\n"


def test_one_family_does_not_touch_the_other() -> None:
    for each in Family:
        NftablesKernel(each).apply(plan(each, numbered(each, 1, 1)))
    before = listed(Family.IPV6)
    remove_table(Family.IPV4)
    assert listed(Family.IPV6) == before


@pytest.mark.parametrize(
    ("release", "enough"), [("5.12.19-x", False), ("5.13.0", True), ("6.1-rc1", True), ("10.0.1", True)]
)
def test_a_kernel_that_is_too_old_is_refused_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    release: str,
    enough: bool,  # noqa: FBT001
) -> None:
    """Behaviour ``nft.min-versions``."""
    monkeypatch.delenv(applier.SKIP_KERNEL_CHECK, raising=False)
    monkeypatch.setattr(host, "read_sysctl", lambda _: release)
    if enough:
        check_kernel()
        return
    with pytest.raises(HostError, match=r"kernel 5\.12\.19-x is older than 5\.13") as caught:
        check_kernel()
    assert caught.value.reason is Reason.UNSUPPORTED
    monkeypatch.setenv(applier.SKIP_KERNEL_CHECK, "yes")
    check_kernel()


def test_invalid_packets_pass_where_conntrack_is_liberal() -> None:
    assert machine_options(14) == Options(masquerade_mark=0x4000, drop_invalid=True)
    host.write_sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", "1")
    assert machine_options(15) == Options(0x8000, drop_invalid=False, drop_invalid_input=False)


@pytest.mark.parametrize("family", list(Family))
def test_where_tracking_is_not_loose_invalid_packets_reach_the_node(family: Family) -> None:
    kernel = NftablesKernel(family, machine_options(14))
    kernel.apply(plan(family))
    assert listed(family).count("ct state invalid") == 2
    assert not kernel.refresh_options()
    host.write_sysctl("net/netfilter/nf_conntrack_tcp_loose", "0")
    assert kernel.refresh_options()
    assert kernel.apply(plan(family)).rewritten
    assert listed(family).count("ct state invalid") == 1, "what is forwarded"


@pytest.mark.long
def test_a_batch_of_many_megabytes_is_one_transaction() -> None:
    family = Family.IPV4
    services = []
    for number in range(400):
        endpoints = pool(*(f"10.{number // 200}.{number % 200}.{i}:80" for i in range(1, 251)))
        front = frontend(Exposure.CLUSTER_IP, f"172.30.{number // 250}.{number % 250}", 80, endpoints)
        services.append(service(front, name=f"ns/svc{number}:http"))
    applied = NftablesKernel(family).apply(plan(family, *services))
    assert applied.changes["elements"] == 400 * 252
    shown = subprocess.run(
        (
            "nft",
            "get",
            "element",
            "ip",
            "kube-proxy",
            "service-endpoints",
            "{ 172.30.1.149 . tcp . 80 . 249 }",
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "10.1.199.250 . 80" in shown.stdout
