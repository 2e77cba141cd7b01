"""Looks at chains are spared only while the tables are in the state in which nothing was missing."""

from dataclasses import dataclass, field

import pytest

from kproxy.linux.legacy_tables import LegacyTables
from kproxy.model.network import Family
from kproxy.proxy.backends.xtables.kernel import unchanged
from kproxy.proxy.backends.xtables.kernel.unchanged import UnchangedTables


class State:
    """The state of the tables that the kernel reports now."""

    def __init__(self, number: bytes = b"1") -> None:
        self.number = number

    def __call__(self) -> bytes:
        return self.number


class Look:
    """Counts its calls; finds what is missing now."""

    def __init__(self, *missing: str) -> None:
        self.missing, self.calls = missing, 0

    def __call__(self) -> tuple[str, ...]:
        self.calls += 1
        return self.missing


def test_in_the_same_state_a_second_look_is_spared() -> None:
    state = State()
    tables, look = UnchangedTables(state), Look()
    assert [tables.missing(look) for _ in range(3)] == [(), (), ()]
    assert look.calls == 1
    state.number = b"2"
    look.missing = ("chain X",)
    assert tables.missing(look) == ("chain X",)


def test_what_is_missing_is_reported_until_it_is_there() -> None:
    state = State()
    tables, look = UnchangedTables(state), Look("chain X")
    assert [tables.missing(look) for _ in range(2)] == [("chain X",)] * 2


def test_a_change_during_a_look_makes_the_next_one_due() -> None:
    state = State()
    tables = UnchangedTables(state)

    def look_while_another_writes() -> tuple[str, ...]:
        state.number = b"2"
        return ()

    tables.missing(look_while_another_writes)
    again = Look()
    tables.missing(again)
    assert again.calls == 1


@dataclass(frozen=True, slots=True)
class Tables(LegacyTables):
    """Tables of iptables-legacy whose sizes and checksum are given, and reads of the latter counted."""

    now: dict[str, bytes] = field(default_factory=dict)
    sums: list[bytes] = field(default_factory=list)

    def sizes(self) -> bytes:
        return self.now["sizes"]

    def digest(self) -> bytes:
        self.sums.append(self.now["digest"])
        return self.sums[-1]


def test_of_legacy_tables_a_checksum_is_read_when_sizes_differ_or_time_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    tables = Tables(Family.IPV4, {"sizes": b"10", "digest": b"a"})
    read = unchanged._LegacyState(tables).read
    assert [read() for _ in range(900)] == [b"10a"] * 900
    assert tables.sums == [b"a"], "a checksum took one second of a thousand"
    tables.now["digest"] = b"b"
    assert [read() for _ in range(200)].count(b"10a") in range(90, 110)
    tables.now.update(sizes=b"11", digest=b"c")
    assert read() == b"11c", "at once"
    assert tables.sums == [b"a", b"b", b"c"]
