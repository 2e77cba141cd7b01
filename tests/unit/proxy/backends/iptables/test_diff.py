"""Transactions bring any kernel to any plan, refuse nothing half-way, and touch only what differs."""

import re
from itertools import product

import pytest
from hypothesis import given, settings

from kproxy.linux.netfilter.restore import BUILTIN, RestoredTables
from kproxy.proxy.backends.iptables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.iptables.diff import Rewrite, Update, diff
from kproxy.proxy.backends.iptables.dispatch_tree import SHAPE, Shape
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS, Block
from kproxy.proxy.backends.xtables.rules import Destination, TableName, render
from kproxy.proxy.plan import Exposure, Plan, ServicePlan
from tests.support.iptables_model import (
    NARROW,
    OPTIONS,
    SHAPES,
    SMALL_BLOCKS,
    build_ruleset,
    existing,
    held,
    rewritten,
    rules_met,
)
from tests.support.plans import frontend, plan_of, plans, pool, service


def wanted(desired: DesiredState) -> dict[str, dict[str, list[str]]]:
    """What the tables should hold, from the typed rules; builtin chains left out, they are the kernel module's."""
    found: dict[str, dict[str, list[str]]] = {}
    for table, chains in build_ruleset(desired).tables.items():
        own = {n: c for n, c in chains.items() if n not in BUILTIN[table.value] and n != "KUBE-FIREWALL"}
        found[table.value] = {n: [x.split(" ", 2)[2] for x in render(c)] for n, c in own.items()}
    return found


def states(before: Plan, after: Plan, shape: Shape) -> tuple[DesiredState, DesiredState]:
    """Two states, the second with the trees of the first, edited."""
    old = desired_state(before, OPTIONS, shape=shape)
    assert old.trees
    return old, desired_state(after, OPTIONS, old, shape)


@pytest.mark.parametrize("shape", SHAPES)
@given(plan=plans())
@settings(deadline=None)
def test_a_rewrite_of_an_empty_kernel_gives_exactly_the_ruleset(shape: Shape, plan: Plan) -> None:
    desired = desired_state(plan, OPTIONS, shape=shape)
    assert held(rewritten(desired)) == wanted(desired)
    assert held(rewritten(desired, limit=LEGACY_BLOCK_CHAINS)) == wanted(desired)


@pytest.mark.parametrize("shapes", tuple(product(SHAPES, repeat=2)))
@given(before=plans(), after=plans())
@settings(deadline=None)
def test_a_rewrite_leaves_nothing_of_an_earlier_run(
    shapes: tuple[Shape, Shape], before: Plan, after: Plan
) -> None:
    desired = desired_state(after, OPTIONS, shape=shapes[1])
    for limit in (SMALL_BLOCKS, LEGACY_BLOCK_CHAINS):
        tables = rewritten(desired_state(before, OPTIONS, shape=shapes[0]))
        assert held(rewritten(desired, tables, limit)) == wanted(desired)


@pytest.mark.parametrize("shape", SHAPES)
@given(before=plans(), after=plans())
@settings(deadline=None)
def test_a_change_gives_what_a_rewrite_gives(shape: Shape, before: Plan, after: Plan) -> None:
    old, new = states(before, after, shape)
    for limit in (SMALL_BLOCKS, LEGACY_BLOCK_CHAINS):
        tables = rewritten(old)
        tables.apply(str(diff(old, new, limit)))
        assert held(tables) == wanted(new)
        ends = tables.tables["nat"]["KUBE-SERVICES"][-len(new.node_port_lines) :]
        assert ends == new.node_port_lines, "node ports must come last"


@pytest.mark.parametrize("shape", SHAPES)
@given(before=plans(), after=plans())
@settings(deadline=None)
def test_growth_counts_the_rules(shape: Shape, before: Plan, after: Plan) -> None:
    old, new = states(before, after, shape)
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


def answered(tables: RestoredTables, destination: Destination) -> bool:
    """Whether some rule that a packet meets, in nat or in filter, decides about new packets to the address."""
    chains = (("nat", "KUBE-SERVICES"), ("filter", "KUBE-SERVICES"), ("filter", "KUBE-EXTERNAL-SERVICES"))
    met = [rule for table, chain in chains for rule in rules_met(tables, table, chain, destination)]
    return any(re.search(r"-d \S+ .*-j (KUBE-|REJECT|DROP)", rule) for rule in met)


def destinations(plan: Plan) -> set[Destination]:
    return {
        Destination(f.address, s.protocol, f.port)
        for s in plan.services
        for f in s.frontends
        if f.address is not None
    }


@pytest.mark.parametrize("shape", SHAPES)
@given(before=plans(), after=plans())
@settings(deadline=None)
def test_no_moment_leaves_a_known_address_without_an_answer(shape: Shape, before: Plan, after: Plan) -> None:
    old, new = states(before, after, shape)
    stay = destinations(before) & destinations(after)
    for transaction in (Update(old, new, SMALL_BLOCKS), None):
        tables = rewritten(old)
        assert all(answered(tables, destination) for destination in stay)
        text = str(transaction or Rewrite(existing(tables), new, SMALL_BLOCKS))
        for _ in tables.restore(text):
            assert [one for one in stay if not answered(tables, one)] == []


def treatment(tables: RestoredTables, destination: Destination) -> str:
    """How packets to an address are treated whose sender no rule names; filter's chains may be written apart, so refusals are alike."""
    met = rules_met(tables, "nat", "KUBE-SERVICES", destination)
    if any(" -j KUBE-" in rule and "KUBE-NODEPORTS" not in rule for rule in met):
        return "served"
    chains = ("KUBE-PROXY-FIREWALL", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES")
    refusals = [
        rule
        for chain in chains
        for rule in rules_met(tables, "filter", chain, destination)
        if " -d " in rule and " -s " not in rule
    ]
    return "refused" if refusals else "untouched"


@pytest.mark.parametrize("shape", SHAPES)
@given(before=plans(), after=plans())
@settings(deadline=None)
def test_no_moment_treats_an_address_otherwise_than_before_or_after(
    shape: Shape, before: Plan, after: Plan
) -> None:
    """A refusal without a rule of nat beside it is met by senders whom the policy, or source ranges, do not concern.

    A `Rewrite` knows the names of chains alone: it is held to this for new services.
    """
    old, new = states(before, after, shape)
    named = {s.name for s in before.services}
    come = plan_of(*(s for s in after.services if s.name not in named))
    for transaction, some in (
        (Update(old, new, SMALL_BLOCKS), destinations(before) | destinations(after)),
        (None, destinations(come) - destinations(before)),
    ):
        tables, last = rewritten(old), rewritten(new)
        lawful = {one: {treatment(tables, one), treatment(last, one)} for one in some}
        text = str(transaction or Rewrite(existing(tables), new, SMALL_BLOCKS))
        for _ in tables.restore(text):
            assert [one for one in some if treatment(tables, one) not in lawful[one]] == []


@pytest.mark.parametrize("shapes", [(SHAPE, NARROW), (NARROW, SHAPE)])
@given(before=plans(), after=plans())
@settings(deadline=None)
def test_another_shape_takes_over_without_a_gap(
    shapes: tuple[Shape, Shape], before: Plan, after: Plan
) -> None:
    """What an earlier version left may have other widths, or none."""
    old, new = (
        desired_state(plan, OPTIONS, shape=shape) for plan, shape in zip((before, after), shapes, strict=True)
    )
    stay = destinations(before) & destinations(after)
    tables = rewritten(old)
    for _ in tables.restore(str(Rewrite(existing(tables), new, SMALL_BLOCKS))):
        assert [one for one in stay if not answered(tables, one)] == []


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
    old, new = states(
        plan_of(numbered(1, "10.0.0.1:80", "10.0.0.2:80"), *OTHERS),
        plan_of(numbered(1, "10.0.0.1:80", "10.0.0.3:80"), *OTHERS),
        SHAPE,
    )
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert text.count("COMMIT") == 1
    assert "KUBE-SERVICES" not in text
    touched = set(re.findall(r"^:(\S+)", text, re.MULTILINE))
    assert len(touched) == 3  # the service, the endpoint that came, the one that went
    assert "10.0.0.1:80" in text  # its share changes with the service chain
    assert len(re.findall("^-X KUBE-SEP-", text, re.MULTILINE)) == 1


def test_a_new_service_rewrites_one_leaf() -> None:
    old, new = states(plan_of(*OTHERS), plan_of(numbered(1, "10.0.0.1:80"), *OTHERS), SHAPE)
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert text.count("COMMIT") == 1
    assert re.findall(r"^:(KUBE-SVC-\S*/\S*|KUBE-SERVICES)", text, re.MULTILINE) == ["KUBE-SVC-10.96.1.0/29"]


def test_unchanged_services_share_their_fragments() -> None:
    old = desired_state(plan_of(numbered(1, "10.0.0.1:80"), *OTHERS), OPTIONS)
    new = desired_state(plan_of(numbered(1), *OTHERS), OPTIONS, old)
    same = [name for name, rules in new.service_rules.items() if old.service_rules[name] is rules]
    assert len(same) == len(OTHERS)


def test_a_changed_option_rewrites_only_the_constant_chains_it_is_in() -> None:
    plan = plan_of(*OTHERS)
    old = desired_state(plan, OPTIONS)
    new = desired_state(plan, Options(health_check_ports=(32000,)), old)
    text = str(diff(old, new, LEGACY_BLOCK_CHAINS))
    assert text.splitlines()[:2] == ["*filter", ":KUBE-NODEPORTS - [0:0]"]
    assert text.count("\n") == 5


def test_a_tree_is_written_in_blocks_without_a_gap() -> None:
    """Fifty Services become 350, of which 300 are refused, and fifty again; blocks have few chains, trees many."""
    few = plan_of(*(numbered(i % 256, "10.0.0.1:80") for i in range(50)))
    many = plan_of(*(spread(i) for i in range(300)), *few.services)
    stay = destinations(few)
    old, new = states(few, many, SHAPE)
    tables = rewritten(old)
    for text in (str(Update(old, new, SMALL_BLOCKS)), str(Update(new, old, SMALL_BLOCKS))):
        for _ in tables.restore(text):
            assert [one for one in stay if not answered(tables, one)] == []
    assert held(tables) == wanted(old)


def spread(number: int) -> ServicePlan:
    address = f"10.97.{number * 37 % 256}.{number % 256}"
    front = frontend(Exposure.CLUSTER_IP, address, 80, pool())
    return service(front, name=f"ns/spread{number}:http")
