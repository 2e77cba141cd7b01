"""Looks at chains are spared only while nf_tables is in the state in which nothing was missing."""

import pytest

from kproxy.proxy.backends.xtables.kernel import unchanged
from kproxy.proxy.backends.xtables.kernel.tools import Variant


@pytest.fixture
def generations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The state that the kernel reports, as a list of one."""
    current: list[bytes] = []
    monkeypatch.setattr(unchanged, "nft_generation", lambda: current[0])
    return current


class Look:
    """Counts its calls; finds what is missing now."""

    def __init__(self, *missing: str) -> None:
        self.missing, self.calls = missing, 0

    def __call__(self) -> tuple[str, ...]:
        self.calls += 1
        return self.missing


def test_in_the_same_state_a_second_look_is_spared(generations: list[bytes]) -> None:
    generations[:] = [b"1"]
    tables, look = unchanged.UnchangedTables(Variant.NFT), Look()
    assert [tables.missing(look) for _ in range(3)] == [(), (), ()]
    assert look.calls == 1
    generations[:] = [b"2"]
    look.missing = ("chain X",)
    assert tables.missing(look) == ("chain X",)


def test_what_is_missing_is_reported_until_it_is_there(generations: list[bytes]) -> None:
    generations[:] = [b"1"]
    tables, look = unchanged.UnchangedTables(Variant.NFT), Look("chain X")
    assert [tables.missing(look) for _ in range(2)] == [("chain X",)] * 2


def test_a_change_during_a_look_makes_the_next_one_due(generations: list[bytes]) -> None:
    tables = unchanged.UnchangedTables(Variant.NFT)

    def look_while_another_writes() -> tuple[str, ...]:
        generations[:] = [b"2"]
        return ()

    generations[:] = [b"1"]
    tables.missing(look_while_another_writes)
    again = Look()
    tables.missing(again)
    assert again.calls == 1


def test_legacy_tables_have_no_number_and_are_always_looked_at(generations: list[bytes]) -> None:
    generations[:] = [b"1"]
    tables, look = unchanged.UnchangedTables(Variant.LEGACY), Look()
    for _ in range(3):
        tables.missing(look)
    assert look.calls == 3
