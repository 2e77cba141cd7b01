"""docs/daemon-configuration.md has every field and flag, and evidence for each."""

import re
from collections.abc import Iterator

import msgspec

from kproxy.proxy.daemon.config.configuration import Configuration, Section
from kproxy.proxy.daemon.config.flag_table import ROWS
from tests.support.paths import ROOT
from tools.docgen import evidence

PAGE = (ROOT / "docs/daemon-configuration.md").read_text(encoding="utf-8")
SETTINGS = PAGE.partition("## Behaviours")[0]
TABLES = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]


def fields(kind: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    for info in msgspec.structs.fields(kind):
        if isinstance(info.type, type) and issubclass(info.type, Section):
            yield from fields(info.type, f"{path}{info.encode_name}.")
        else:
            yield path + info.encode_name


def in_ticks(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_field_has_a_row() -> None:
    rows = {name for row in TABLES for name in in_ticks(row[0]) if not name.startswith("-")}
    assert set(fields(Configuration)) <= rows


def test_every_flag_stands_beside_its_field_or_among_the_actions() -> None:
    beside = {
        flag: in_ticks(row[0])
        for row in TABLES
        if row[0] in SETTINGS
        for flag in in_ticks("".join(row[:2]))
        if flag.startswith("--")
    }
    assert {f"--{row.flag.name}" for row in ROWS} == set(beside)
    for row in ROWS:
        if row.field and "{" not in row.field:
            (field,) = beside[f"--{row.flag.name}"]
            assert row.field.startswith(field)


def test_every_row_has_a_test() -> None:
    found = evidence.load_evidence()["daemon-configuration.md"]
    assert [row[0] for row in TABLES if not found.get(row[0].removeprefix("| ").replace("`", ""))] == []
