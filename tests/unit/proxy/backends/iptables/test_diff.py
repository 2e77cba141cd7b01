"""Transactions bring any kernel to any plan, refuse nothing half-way, and touch only what differs."""

import re

from hypothesis import given, settings

from kproxy.linux.netfilter.restore import BUILTIN, RestoredTables
from kproxy.proxy.backends.iptables.desired_state import DesiredState, build_ruleset, desired_state
from kproxy.proxy.backends.iptables.diff import Rewrite, Update, diff
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS, Block
from kproxy.proxy.backends.xtables.rules import TableName, render
from kproxy.proxy.plan import Exposure, Plan, ServicePlan
from tests.support.iptables_model import OPTIONS, SMALL_BLOCKS, existing, held, rewritten, unordered
from tests.support.plans import frontend, plan_of, plans, pool, service


def wanted(desired: DesiredState) -> dict[str, dict[str, list[str]]]:
    """What the tables should hold, from the typed rules; builtin chains left out, they are the kernel module's."""
    found: dict[str, dict[str, list[str]]] = {}
    for table, chains in build_ruleset(desired).tables.items():
        own = {n: c for n, c in chains.items() if n not in BUILTIN[table.value] and n != "KUBE-FIREWALL"}
        found[table.value] = {n: [x.split(" ", 2)[2] for x in render(c)] for n, c in own.items()}
    return found


@given(plans())
@settings(deadline=None)
def test_a_rewrite_of_an_empty_kernel_gives_exactly_the_ruleset(plan: Plan) -> None:
    desired = desired_state(plan, OPTIONS)
    assert held(rewritten(desired)) == wanted(desired)
    assert held(rewritten(desired, limit=LEGACY_BLOCK_CHAINS)) == wanted(desired)


@given(plans(), plans())
@settings(deadline=None)
def test_a_rewrite_leaves_nothing_of_an_earlier_run(before: Plan, after: Plan) -> None:
    desired = desired_state(after, OPTIONS)
    for limit in (SMALL_BLOCKS, LEGACY_BLOCK_CHAINS):
        tables = rewritten(desired_state(before, OPTIONS))
        assert held(rewritten(desired, tables, limit)) == wanted(desired)


@given(plans(), plans())
@settings(deadline=None)
def test_a_change_gives_what_a_rewrite_gives(before: Plan, after: Plan) -> None:
    old = desired_state(before, OPTIONS)
    new = desired_state(after, OPTIONS, old)
    for limit in (SMALL_BLOCKS, LEGACY_BLOCK_CHAINS):
        tables = rewritten(old)
        tables.apply(str(diff(old, new, limit)))
        assert unordered(held(tables)) == unordered(wanted(new))
        ends = tables.tables["nat"]["KUBE-SERVICES"][-len(new.node_port_lines) :]
        assert tuple(ends) == new.node_port_lines, "node ports must come last"


@given(plans(), plans())
@settings(deadline=None)
def test_growth_counts_the_rules(before: Plan, after: Plan) -> None:
    old = desired_state(before, OPTIONS)
    new = desired_state(after, OPTIONS, old)
    for table in TableName:
        full = sum(growth(b) for b in Rewrite({}, old, SMALL_BLOCKS) if b.table is table)
        assert full == sum(map(len, wanted(old)[table.value].values()))
        change = sum(growth(b) for b in Update(old, new, SMALL_BLOCKS) if b.table is table)
        assert full + change == sum(map(len, wanted(new)[table.value].values()))


def growth(block: Block) -> int:
    if block.added_rules is None:
        return sum(line.startswith("-A ") for line in block.lines)
    return block.added_rules


@given(plans(), plans())
@settings(deadline=None)
def test_growth_of_a_rewrite_is_all_there_is_whatever_was_there(before: Plan, after: Plan) -> None:
    desired = desired_state(after, OPTIONS)
    for limit in (SMALL_BLOCKS, LEGACY_BLOCK_CHAINS):
        tables = rewritten(desired_state(before, OPTIONS))
        for table in (TableName.NAT, TableName.FILTER):
            blocks = [b for b in Rewrite(existing(tables), desired, limit) if b.table is table]
            assert sum(map(growth, blocks)) == sum(map(len, wanted(desired)[table.value].values()))


def answered(tables: RestoredTables, address: str) -> bool:
    """Whether some rule, of nat or of filter, decides about new packets to the address."""
    rules = [
        r
        for t in ("nat", "filter")
        for n, c in tables.tables[t].items()
        if n[:8] not in {"KUBE-SVC", "KUBE-SVL"}
        for r in c
    ]
    return any(re.search(rf"-d {re.escape(address)} .*-j (KUBE-|REJECT|DROP)", rule) for rule in rules)


def addresses(plan: Plan) -> set[str]:
    return {str(f.address) for s in plan.services for f in s.frontends if f.address is not None}


@given(plans(), plans())
@settings(deadline=None)
def test_no_moment_leaves_a_known_address_without_an_answer(before: Plan, after: Plan) -> None:
    old = desired_state(before, OPTIONS)
    new = desired_state(after, OPTIONS, old)
    stay = addresses(before) & addresses(after)
    for transaction in (Update(old, new, SMALL_BLOCKS), None):
        tables = rewritten(old)
        assert all(answered(tables, address) for address in stay)
        text = str(transaction or Rewrite(existing(tables), new, SMALL_BLOCKS))
        for _ in tables.restore(text):
            assert [address for address in stay if not answered(tables, address)] == []


def numbered(number: int, *endpoints: str) -> ServicePlan:
    front = frontend(Exposure.CLUSTER_IP, f"10.96.1.{number}", 80, pool(*endpoints))
    return service(front, name=f"ns/svc{number}:http")


OTHERS = tuple(numbered(i, "10.0.0.1:80") for i in range(2, 100))


def test_the_same_plan_costs_nothing() -> None:
    plan = plan_of(*OTHERS)
    old = desired_state(plan, OPTIONS)
    assert str(diff(old, desired_state(plan, OPTIONS, old), SMALL_BLOCKS)) == ""
    assert str(diff(old, desired_state(plan, OPTIONS), SMALL_BLOCKS)) == ""  # equal, not identical


def test_an_endpoint_change_is_one_block_that_touches_its_service_alone() -> None:
    old = desired_state(plan_of(numbered(1, "10.0.0.1:80", "10.0.0.2:80"), *OTHERS), OPTIONS)
    new = desired_state(plan_of(numbered(1, "10.0.0.1:80", "10.0.0.3:80"), *OTHERS), OPTIONS, old)
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert text.count("COMMIT") == 1
    assert "KUBE-SERVICES" not in text
    touched = set(re.findall(r"^:(\S+)", text, re.MULTILINE))
    assert len(touched) == 3  # the service, the endpoint that came, the one that went
    assert "10.0.0.1:80" in text  # its share changes with the service chain
    assert len(re.findall("^-X KUBE-SEP-", text, re.MULTILINE)) == 1


def test_a_new_service_adds_one_dispatch_rule_and_rewrites_none() -> None:
    old = desired_state(plan_of(*OTHERS), OPTIONS)
    new = desired_state(plan_of(numbered(1, "10.0.0.1:80"), *OTHERS), OPTIONS, old)
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert text.count("COMMIT") == 1
    assert [line[:17] for line in text.splitlines() if "KUBE-SERVICES" in line] == ["-I KUBE-SERVICES "]


def test_many_deleted_services_rewrite_the_dispatch_chain_instead() -> None:
    old = desired_state(plan_of(*OTHERS), OPTIONS)
    new = desired_state(plan_of(*OTHERS[:40]), OPTIONS, old)
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert ":KUBE-SERVICES - [0:0]" in text
    assert "-D KUBE-SERVICES" not in text


def test_unchanged_services_share_their_fragments() -> None:
    old = desired_state(plan_of(numbered(1, "10.0.0.1:80"), *OTHERS), OPTIONS)
    new = desired_state(plan_of(numbered(1), *OTHERS), OPTIONS, old)
    same = [name for name, fragment in new.service_rules.items() if old.service_rules[name] is fragment]
    assert len(same) == len(OTHERS)


def test_a_changed_option_rewrites_only_the_constant_chains_it_is_in() -> None:
    plan = plan_of(*OTHERS)
    old = desired_state(plan, OPTIONS)
    new = desired_state(plan, Options(health_check_ports=(32000,)), old)
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert text.splitlines()[:2] == ["*filter", ":KUBE-NODEPORTS - [0:0]"]
    assert text.count("\n") == 5
