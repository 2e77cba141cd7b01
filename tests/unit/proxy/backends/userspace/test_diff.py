"""Transactions of userspace mode: no address is neither served nor refused between two blocks."""

from __future__ import annotations

from kproxy.model.network import Family
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.userspace.compile import Context
from kproxy.proxy.backends.userspace.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.userspace.diff import diff
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Exposure, NodePorts, PoolScope
from tests.support.plans import frontend, plan_of, pool, service

CONTEXT = Context(Family.IPV4, None, NodePorts(addresses=None, localhost=False))


def state(nat: tuple[str, ...] = (), refusals: tuple[str, ...] = ()) -> DesiredState:
    tables: dict[TableName, dict[str, tuple[str, ...]]] = {
        table: dict.fromkeys(own, ()) for table, own in names.OWN_CHAINS.items()
    }
    tables[TableName.NAT][names.PORTALS_CONTAINER] = nat
    tables[TableName.FILTER][names.PORTALS_FILTER] = refusals
    return DesiredState(tables, CONTEXT, {})


def texts(before: DesiredState | None, after: DesiredState) -> list[tuple[TableName, list[str]]]:
    return [
        (block.table, [line for line in block.lines if line.startswith("-A")])
        for block in diff(before, after)
    ]


def test_nothing_is_written_where_nothing_differs() -> None:
    assert diff(state(("a",)), state(("a",))) == ()


def test_a_refusal_stands_before_nat_lets_go_and_goes_after_nat_serves() -> None:
    served, refused = state(("-j DNAT",)), state((), ("-j REJECT",))
    refuse, dnat = f"-A {names.PORTALS_FILTER} -j REJECT", f"-A {names.PORTALS_CONTAINER} -j DNAT"
    assert texts(served, refused) == [
        (TableName.FILTER, [refuse]),
        (TableName.NAT, []),
        (TableName.FILTER, [refuse]),
    ]
    assert texts(refused, served) == [
        (TableName.FILTER, [refuse]),
        (TableName.NAT, [dnat]),
        (TableName.FILTER, []),
    ]


def test_a_refusal_of_some_senders_stands_only_where_nat_serves_others() -> None:
    """Of policy Local without an endpoint here: the node's own packets would meet it."""
    everywhere = pool("172.18.0.2:40001")
    local = frontend(Exposure.NODE_PORT, None, 30080, pool(scope=PoolScope.LOCAL), shortcut=everywhere)
    none, some = (desired_state(plan) for plan in (plan_of(), plan_of(service(local))))
    (drop,) = (line for line in some.tables[TableName.FILTER][names.PORTALS_FILTER] if "-j DROP" in line)
    for before, after in ((none, some), (some, none)):
        first, *_, last = (lines for table, lines in texts(before, after) if table is TableName.FILTER)
        assert f"-A {names.PORTALS_FILTER} {drop}" not in first
        assert (f"-A {names.PORTALS_FILTER} {drop}" in last) is (after is some)


def test_where_nat_ceases_to_serve_refusals_are_those_of_the_new_state_and_in_its_order() -> None:
    """Admitted senders are rejected, and not dropped as others are before and after."""

    def guarded(*endpoints: str) -> DesiredState:
        sources = ["192.0.2.0/24"]
        made = frontend(Exposure.LOAD_BALANCER, "203.0.113.9", 80, pool(*endpoints), sources=sources)
        return desired_state(plan_of(service(made)))

    first, *_ = (
        lines for table, lines in texts(guarded("172.18.0.2:40001"), guarded()) if table is TableName.FILTER
    )
    of_portals = [line for line in first if line.startswith(f"-A {names.PORTALS_FILTER} ")]
    assert [line.split(" -j ")[1] for line in of_portals] == ["REJECT", "DROP"]
    assert "-s 192.0.2.0/24" in of_portals[0]


def test_only_tables_that_differ_are_written() -> None:
    assert [table for table, _ in texts(state(("a",), ("r",)), state(("b",), ("r",)))] == [TableName.NAT]


def test_of_an_unknown_state_refusals_stay_until_nat_is_written() -> None:
    """The write of nat may fail, and what was refused must not be sent on meanwhile."""
    blocks = diff(None, state(("-j DNAT",), ("-j NEW",)), ["-j OLD", "-j NEW", "-j NEW"])
    of_filter = [block for block in blocks if block.table is TableName.FILTER]
    written = [[line for line in block.lines if line.startswith("-A")] for block in of_filter]
    old, new = (f"-A {names.PORTALS_FILTER} -j {which}" for which in ("OLD", "NEW"))
    assert written == [[old, new], [new]]


def test_of_an_unknown_state_everything_is_written() -> None:
    blocks = diff(None, state(("a",)))
    assert [block.table for block in blocks] == [
        TableName.MANGLE,
        TableName.FILTER,
        TableName.NAT,
        TableName.FILTER,
    ]
    declared = {line for block in blocks for line in block.lines if line.startswith(":")}
    assert declared == {f":{name} - [0:0]" for own in names.OWN_CHAINS.values() for name in own}
