"""iptables mode against the real kernel, with both variants of the tools and both families."""

import re
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab import namespaces
from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.desired_state import desired_state
from kproxy.proxy.backends.iptables.kernel import (
    IptablesKernel,
    Tools,
    Variant,
    drift,
    find_tools,
    machine_options,
    refresh_options,
    remove_iptables_rules,
)
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.kernel import unchanged
from kproxy.proxy.backends.xtables.rules import PacketCounter, TableName
from kproxy.proxy.plan import NodePorts, Plan
from tests.support.iptables_model import build_ruleset
from tests.support.numbered_plans import numbered, plan
from tests.support.plans import plan_of
from tests.support.recorded_jumps import recorded_jumps

FOREIGN = {
    TableName.FILTER: (
        "-A INPUT -i foreign0 -j DROP",
        "-A FOREIGN -p tcp -j ACCEPT",
        "-A FORWARD -j FOREIGN",
    ),
    TableName.NAT: ("-A POSTROUTING -o foreign0 -j MASQUERADE",),
}


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Inside a network namespace of this test alone: the environment that names a lock of its own."""
    namespace = namespaces.create_namespace("iptables")
    with namespace.entered():
        yield {"XTABLES_LOCKFILE": str(tmp_path / "lock")}
    namespace.close()


@pytest.fixture(params=list(Variant), ids=lambda variant: variant.value)
def tools(request: pytest.FixtureRequest, family: Family, lock: dict[str, str]) -> Tools:
    """The tools of each variant and family."""
    return find_tools(family, request.param, lock)


def saved(tools: Tools, table: TableName) -> list[str]:
    return host.run_tool((f"{tools.command}-save", "-t", table.value)).splitlines()


def chains(tools: Tools, table: TableName) -> set[str]:
    """What is really there, by the tool that lists everything."""
    return {line[1:].split()[0] for line in saved(tools, table) if line.startswith(":")}


def rules(tools: Tools, table: TableName) -> list[str]:
    return [line for line in saved(tools, table) if line.startswith("-A")]


def assert_holds(tools: Tools, wanted: Plan) -> None:
    """All chains of the plan with as many rules as they should have, and no other chain of ours."""
    for table, expected in build_ruleset(desired_state(wanted, Options())).tables.items():
        ours = {name: len(chain.rules) for name, chain in expected.items() if name.startswith("KUBE-")}
        assert {name for name in chains(tools, table) if name.startswith("KUBE-")} == set(ours)
        found = [line.split()[1] for line in rules(tools, table)]
        assert {name: found.count(name) for name in ours} == ours
        known = {name for name in tools.chains()[table] if name.startswith("KUBE-")}
        assert known == set(ours), "what the backend itself sees"


def test_services_come_change_and_go(tools: Tools, family: Family) -> None:
    kernel = IptablesKernel(tools)
    steps = [
        plan(family),
        plan(family, numbered(family, 1, 1, 2), numbered(family, 2)),
        plan(family, numbered(family, 1, 2, 3), numbered(family, 2, 1, affinity=60)),
        plan(family, numbered(family, 1), *(numbered(family, i, 1, 2) for i in range(3, 40))),
        plan(family, numbered(family, 2, 1)),
        plan(family),
    ]
    reports = []
    for step in steps:
        reports.append(kernel.apply(step, Options()))
        assert_holds(tools, step)
        total = {t: len([x for x in rules(tools, t) if x.startswith("-A KUBE-")]) for t in TableName}
        guard = family is Family.IPV4
        total[TableName.FILTER] -= guard
        counted = {t: reports[-1].rules[t.value].total for t in (TableName.FILTER, TableName.NAT)}
        assert {**counted, TableName.MANGLE: 0} == total
    assert [report.rewritten for report in reports] == [True] + [False] * (len(steps) - 1)
    assert kernel.find_drift() == ()


def test_the_dispatch_to_node_ports_stays_last(tools: Tools, family: Family) -> None:
    kernel = IptablesKernel(tools)
    for count in (1, 2, 5):
        kernel.apply(plan(family, *(numbered(family, i, 1) for i in range(1, count + 1))), Options())
        dispatch = [line for line in rules(tools, TableName.NAT) if line.startswith("-A KUBE-SERVICES")]
        assert len(dispatch) == count + 1
        assert dispatch[-1].endswith("-j KUBE-NODEPORTS")


def test_jumps_stand_at_the_top_of_builtin_chains_and_foreign_rules_survive(
    tools: Tools, family: Family
) -> None:
    foreign = [
        Block(TableName.FILTER, [":FOREIGN - [0:0]", *FOREIGN[TableName.FILTER]]),
        Block(TableName.NAT, FOREIGN[TableName.NAT]),
    ]
    tools.restore(foreign)
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1)), Options())
    kernel.apply(plan(family), Options())
    for table, lines in FOREIGN.items():
        assert [line for line in lines if line not in rules(tools, table)] == []
    forward = [
        x.rsplit("-j ", 1)[1].split()[0] for x in rules(tools, TableName.FILTER) if x.startswith("-A FORWARD")
    ]
    assert forward == [
        names.PROXY_FIREWALL,
        names.FORWARD,
        names.SERVICES,
        names.EXTERNAL_SERVICES,
        "FOREIGN",
    ]
    kernel.cleanup()
    for table, lines in FOREIGN.items():
        assert [line for line in lines if line not in rules(tools, table)] == []
        assert [line for line in rules(tools, table) if "KUBE-" in line and names.FIREWALL not in line] == []
    assert "FOREIGN" in chains(tools, TableName.FILTER)


def builtin_jumps(tools: Tools) -> list[str]:
    """Each rule of a builtin chain with its table before it, in the order of a recording."""
    return [
        f"{table.value} {line}"
        for table in (TableName.FILTER, TableName.NAT)
        for line in rules(tools, table)
        if not line.startswith("-A KUBE-")
    ]


def leave_jumps(tools: Tools, lines: Iterable[str]) -> None:
    """Rules as another proxy, or a version of ours, left them; with the chains that they lead to."""
    for table in (TableName.FILTER, TableName.NAT):
        found = [line.partition(" ")[2] for line in lines if line.startswith(f"{table.value} ")]
        declared = [f":{target} - [0:0]" for target in sorted({line.split()[-1] for line in found})]
        tools.restore([Block(table, [*declared, *found])])


def comment_first(line: str) -> str:
    """As kproxy wrote a jump before it wrote it as kube-proxy does."""
    condition = " -m conntrack --ctstate NEW"
    return line.replace(condition, "").replace(" -j ", f"{condition} -j ") if condition in line else line


def test_jumps_of_kube_proxy_are_kept_and_not_doubled(tools: Tools, family: Family) -> None:
    leave_jumps(tools, recorded_jumps(family))
    assert builtin_jumps(tools) == recorded_jumps(family)
    for _ in range(2):
        kernel = IptablesKernel(tools)
        kernel.apply(plan(family, numbered(family, 1, 1, 2)), Options())
        assert builtin_jumps(tools) == recorded_jumps(family)
        assert kernel.find_drift() == ()


def test_jumps_that_stand_more_than_once_in_either_order_are_left_once(tools: Tools, family: Family) -> None:
    before = [*map(comment_first, recorded_jumps(family)), *recorded_jumps(family), *recorded_jumps(family)]
    assert len(set(before)) == 21, "two ways to write the seven that have a condition"
    leave_jumps(tools, before)
    foreign = '-A FORWARD -i foreign0 -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD'
    tools.restore([Block(TableName.FILTER, [foreign])])
    IptablesKernel(tools).apply(plan(family, numbered(family, 1, 1, 2)), Options())
    left = builtin_jumps(tools)
    assert f"filter {foreign}" in left
    own = [line for line in left if "foreign0" not in line and "KUBE-FIREWALL" not in line]
    assert own == [line for line in recorded_jumps(family) if "KUBE-FIREWALL" not in line]
    if family is Family.IPV4:
        assert len([line for line in left if "KUBE-FIREWALL" in line]) == 2


def test_kube_proxys_cleanup_removes_what_we_wrote(tools: Tools, family: Family) -> None:
    """As its cleanup does: each jump by its text if it is there, then the chains of a table at once."""
    IptablesKernel(tools).apply(plan(family, numbered(family, 1, 1, 2)), Options())
    for line in recorded_jumps(family):
        where, _, rule = line.partition(" -A ")
        if line in builtin_jumps(tools) and "KUBE-FIREWALL" not in line:
            tools.restore([Block(TableName(where), [f"-D {rule}"])])
    for table in (TableName.FILTER, TableName.NAT):
        ours = sorted(c for c in chains(tools, table) if c.startswith("KUBE-") and c != names.FIREWALL)
        assert ours
        tools.restore([Block(table, [*(f":{c} - [0:0]" for c in ours), *(f"-X {c}" for c in ours)])])
    assert {line for line in builtin_jumps(tools) if "KUBE-FIREWALL" not in line} == set()


def test_what_an_earlier_run_left_is_removed(tools: Tools, family: Family) -> None:
    IptablesKernel(tools).apply(plan(family, *(numbered(family, i, 1, 2) for i in range(1, 20))), Options())
    wanted = plan(family, numbered(family, 3, 2))
    kernel = IptablesKernel(tools)
    assert kernel.apply(wanted, Options()).rewritten
    assert_holds(tools, wanted)
    builtin = [
        line for line in rules(tools, TableName.FILTER) if re.match("-A (INPUT|FORWARD|OUTPUT) ", line)
    ]
    assert len(builtin) == len(set(builtin)), "no jump twice"


class BreaksOnce:
    """Puts a line that no tool accepts into the middle of the next restore."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.armed = host.run_tool, True
        monkeypatch.setattr(host, "run_tool", self)

    def __call__(self, argv: tuple[str, ...], stdin: Iterable[bytes] = (), **options: object) -> str:
        if self.armed and argv[0].endswith("-restore"):
            self.armed = False
            text = b"".join(stdin).replace(b"COMMIT\n", b"-A NO-SUCH-CHAIN -j ACCEPT\nCOMMIT\n")
            stdin = [text]
        return self.run(argv, stdin, **options)  # type: ignore[arg-type]


def test_after_a_broken_restore_everything_is_written_again(
    tools: Tools, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1), numbered(family, 2, 1)), Options())
    wanted = plan(family, numbered(family, 1, 2), numbered(family, 3, 1))
    BreaksOnce(monkeypatch)
    with pytest.raises(HostError, match=re.escape(f"{tools.command}-restore")):
        kernel.apply(wanted, Options())
    assert kernel.apply(wanted, Options()).rewritten
    assert_holds(tools, wanted)


def test_a_vanished_chain_is_repaired_after_one_failure(tools: Tools, family: Family) -> None:
    """Behaviour ``life.partial-fallback``: somebody deletes a chain we believe in."""
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1), numbered(family, 2, 1)), Options())
    host.run_tool((tools.command, "-t", "nat", "-F"), environment=tools.environment)
    host.run_tool((tools.command, "-t", "nat", "-X"), environment=tools.environment)
    assert names.CANARY in " ".join(kernel.find_drift())
    wanted = plan(family, numbered(family, 1, 1), numbered(family, 2, 2))
    with pytest.raises(HostError):
        kernel.apply(wanted, Options())
    assert kernel.apply(wanted, Options()).rewritten
    assert_holds(tools, wanted)
    assert kernel.find_drift() == ()


@pytest.mark.parametrize("table", list(TableName), ids=lambda table: table.value)
def test_a_flush_is_noticed_in_every_table(tools: Tools, family: Family, table: TableName) -> None:
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1)), Options())
    assert kernel.find_drift() == ()
    host.run_tool((tools.command, "-t", table.value, "-F"), environment=tools.environment)
    flushed = kernel.find_drift()
    assert (flushed != ()) is (table is not TableName.MANGLE), "an empty canary cannot be flushed"
    host.run_tool((tools.command, "-t", table.value, "-X"), environment=tools.environment)
    assert any(f"{names.CANARY} of table {table.value}" in text for text in kernel.find_drift())
    kernel.forget()
    kernel.apply(plan(family, numbered(family, 1, 1)), Options())
    assert kernel.find_drift() == ()
    assert_holds(tools, plan(family, numbered(family, 1, 1)))


ALTERED = [
    ("nat", "-F KUBE-SERVICES"),
    ("nat", "-D KUBE-SERVICES 1"),
    ("nat", "-I KUBE-SERVICES -j RETURN"),
    ("nat", "-R KUBE-MARK-MASQ 1 -j RETURN"),
    ("nat", "-F {service}"),
    ("filter", "-A KUBE-FORWARD -j DROP"),
    ("nat", "-D PREROUTING 1"),
]


@pytest.mark.parametrize(("table", "damage"), ALTERED)
def test_what_another_program_changes_is_noticed_and_restored(
    tools: Tools, family: Family, table: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``life.canary-blindspot``: what upstream does not see as long as the canaries live."""
    monkeypatch.setattr(drift, "_SHARE", 0)
    monkeypatch.setattr(unchanged, "_SHARE", 0)
    kernel = IptablesKernel(tools)
    wanted = plan(family, numbered(family, 1, 1, 2))
    kernel.apply(wanted, Options())
    assert kernel.find_drift() == ()
    service = next(name for name in chains(tools, TableName.NAT) if name.startswith("KUBE-SVC-"))
    tokens = damage.format(service=service).split()
    host.run_tool((tools.command, "-t", table, *tokens), environment=tools.environment)
    if tools.variant is Variant.NFT:
        assert kernel.find_drift(thorough=False) != (), "the kernel reports it"
    else:
        assert kernel.find_drift(thorough=False) == ()
        assert kernel.find_drift(thorough=True) != ()
    kernel.forget()
    kernel.apply(wanted, Options())
    assert kernel.find_drift() == ()
    assert_holds(tools, wanted)


def test_what_others_do_with_their_own_rules_is_none_of_ours(tools: Tools, family: Family) -> None:
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1, 2)), Options())
    assert kernel.find_drift() == ()
    for arguments in (
        "-t nat -N FOREIGN",
        "-t nat -A FOREIGN -j KUBE-MARK-MASQ",
        "-t nat -A POSTROUTING -o foreign0 -j MASQUERADE",
        "-t nat -D POSTROUTING -o foreign0 -j MASQUERADE",
        "-t nat -D FOREIGN -j KUBE-MARK-MASQ",
        "-t nat -X FOREIGN",
        "-t filter -N KUBE-KUBELET-CANARY",
        "-t filter -I INPUT -j ACCEPT",
    ):
        host.run_tool((tools.command, *arguments.split()), environment=tools.environment)
        assert kernel.find_drift(thorough=False) == ()
    assert kernel.find_drift() == ()


def test_the_kernels_reports_of_others_changes_wake_and_ours_do_not(tools: Tools, family: Family) -> None:
    """iptables-legacy reports nothing."""
    kernel = IptablesKernel(tools)
    assert kernel.notifiers() == ()
    kernel.apply(plan(family, numbered(family, 1, 1, 2)), Options())
    kernel.apply(plan(family, numbered(family, 1, 1)), Options())
    assert len(kernel.notifiers()) == (tools.variant is Variant.NFT)
    assert select.select(kernel.notifiers(), (), (), 0)[0] == []
    host.run_tool((tools.command, "-t", "nat", "-F", "KUBE-SERVICES"), environment=tools.environment)
    assert select.select(kernel.notifiers(), (), (), 0)[0] == list(kernel.notifiers())
    kernel.find_drift(thorough=False)
    assert select.select(kernel.notifiers(), (), (), 0)[0] == []


def test_a_look_that_is_not_close_costs_next_to_nothing(tools: Tools, family: Family) -> None:
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, *(numbered(family, i, 1, 2) for i in range(1, 100))), Options())
    started = time.process_time()
    for _ in range(100):
        assert kernel.find_drift(thorough=False) == ()
    assert time.process_time() - started < 0.1


def _recorded(run: Callable[..., Any], started: list[Sequence[str]]) -> Callable[..., Any]:
    def recorded(argv: Sequence[str], *arguments: object, **options: object) -> Any:  # noqa: ANN401
        started.append(argv)
        return run(argv, *arguments, **options)

    return recorded


def test_a_thorough_look_starts_no_process_while_all_tables_are_as_they_were(
    tools: Tools, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of any chain makes the tools look again."""
    monkeypatch.setattr(drift, "_SHARE", 0)
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1, 2)), Options())
    run_tool = host.run_tool
    started: list[Sequence[str]] = []
    for name in ("run_tool", "run_lines"):
        monkeypatch.setattr(host, name, _recorded(getattr(host, name), started))
    counts = []
    for _ in range(3):
        assert kernel.find_drift() == ()
        counts.append(len(started))
        started.clear()
    assert counts[0] > 5
    assert counts[1:] == [0, 0]
    run_tool((tools.command, "-t", "nat", "-N", "FOREIGN"), environment=tools.environment)
    assert kernel.find_drift() == ()
    assert len(started) == counts[0], "somebody wrote, so all is looked at"


def test_cleanup_leaves_only_what_the_kubelet_shares(tools: Tools, family: Family) -> None:
    kernel = IptablesKernel(tools)
    kernel.apply(plan(family, numbered(family, 1, 1, 2)), Options())
    kernel.cleanup()
    left = {name for table in TableName for name in chains(tools, table) if name.startswith("KUBE-")}
    assert left == ({names.FIREWALL} if family is Family.IPV4 else set())
    remove_iptables_rules(tools)  # a clean machine


def test_cleanup_of_an_untouched_namespace_creates_no_table(tools: Tools) -> None:
    remove_iptables_rules(tools)
    if tools.variant is Variant.LEGACY:
        ip = "ip" if tools.family is Family.IPV4 else "ip6"
        assert host.read_file(f"/proc/thread-self/net/{ip}_tables_names") == ""
    else:
        assert host.run_tool(("nft", "list", "tables")) == ""


@pytest.mark.parametrize("localhost", [True, False])
def test_loopback_is_routable_only_for_node_ports_on_it(
    tools: Tools, family: Family, *, localhost: bool
) -> None:
    wanted = plan_of(family=family, node_ports=NodePorts(None, localhost=localhost), detector=None)
    assert host.read_sysctl("net/ipv4/conf/all/route_localnet") == "0"
    IptablesKernel(tools).apply(wanted, Options())
    effective = localhost and family is Family.IPV4
    assert host.read_sysctl("net/ipv4/conf/all/route_localnet") == str(int(effective))
    assert (names.FIREWALL in chains(tools, TableName.FILTER)) is effective


def test_the_kubelets_rules_in_the_shared_firewall_chain_survive(tools: Tools, family: Family) -> None:
    kubelet = f"-A {names.FIREWALL} -m mark --mark 0x8000/0x8000 -j DROP"
    tools.restore([Block(TableName.FILTER, [f":{names.FIREWALL} - [0:0]", kubelet])])
    for _ in range(2):
        IptablesKernel(tools).apply(plan(family), Options())
    found = [line for line in rules(tools, TableName.FILTER) if line.startswith(f"-A {names.FIREWALL}")]
    assert kubelet in found
    assert len(found) == (2 if family is Family.IPV4 else 1)


def test_invalid_packets_pass_where_conntrack_is_liberal(tools: Tools) -> None:
    counters = frozenset(PacketCounter)
    assert machine_options(tools, 14) == Options(masquerade_mark=0x4000, drop_invalid=True, counters=counters)
    host.write_sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", "1")
    assert machine_options(tools, 15) == Options(
        masquerade_mark=0x8000, drop_invalid=False, drop_invalid_input=False, counters=counters
    )


def test_where_tracking_is_not_loose_invalid_packets_reach_the_node(tools: Tools) -> None:
    before = machine_options(tools, 14)
    assert refresh_options(before) == before
    host.write_sysctl("net/netfilter/nf_conntrack_tcp_loose", "0")
    assert machine_options(tools, 14) == refresh_options(before) == replace(before, drop_invalid_input=False)


def test_a_held_lock_is_busy(family: Family, lock: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of legacy tools; the others have no lock."""
    monkeypatch.setattr("kproxy.proxy.backends.xtables.kernel.tools.LOCK_SECONDS", 1)
    kernel = IptablesKernel(find_tools(family, Variant.LEGACY, lock))
    kernel.apply(plan(family), Options())
    hold = ("flock", lock["XTABLES_LOCKFILE"], "sh", "-c", "echo held; read line")
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HostError) as caught:
            kernel.apply(plan(family, numbered(family, 1, 1)), Options())
        holder.communicate(b"\n")
    assert caught.value.reason is Reason.BUSY
