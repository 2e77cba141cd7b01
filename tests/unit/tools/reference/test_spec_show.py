"""`kproxy spec show`: every kind of ID, with places that are where it reports them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.behaviours import BEHAVIOURS
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.regressions import REGRESSIONS
from kproxy.spec.topics import TOPICS
from kproxy.tools.reference import entries, mutants, places
from kproxy.tools.reference.entries import NO_TESTS, Item, ReferenceEntry
from kproxy.tools.reference.places import Place
from tests.mutants.table import MUTANTS
from tests.support.paths import ROOT

LOCALHOST = "node-port.localhost.disabled.untouched"
STALE = "conntrack.udp.moves-off-removed-endpoint"


def entry(id: str) -> ReferenceEntry:
    (found,) = entries.entries(id)
    return found


def texts(items: tuple[Item, ...]) -> str:
    return "\n".join(item.text for item in items)


def line(place: Place) -> str:
    return place.path.read_text(encoding="utf-8").splitlines()[place.line - 1]


@pytest.mark.parametrize(
    ("kind", "known"),
    [("clause", list(CLAUSES)), ("case", [case.id for case in CATALOGUE]), ("behaviour", list(BEHAVIOURS))],
    ids=["clauses", "cases", "behaviours"],
)
def test_every_id_has_an_entry_at_the_line_that_defines_it(kind: str, known: list[str]) -> None:
    found = {id: [entry.place for entry in entries.entries(id) if entry.kind == kind] for id in known}
    assert {id: len(places) for id, places in found.items() if len(places) != 1} == {}
    assert [id for id, (place,) in found.items() if f'"{id}"' not in line(place)] == []


@pytest.mark.parametrize("id", [*TOPICS, *REGRESSIONS])
def test_every_topic_and_regression_has_an_entry(id: str) -> None:
    assert entry(id).sentence


def test_a_clause_shows_what_judges_it_serves_it_and_breaks_it() -> None:
    shown = entry(LOCALHOST).sections
    assert "_loopback_serves" in texts(shown["oracle"])
    assert "node-port.localhost-is-left-alone-when-off" in texts(shown["cases"])
    assert "configuration.localhost-on" in texts(shown["mutants"])
    (patched,) = shown["functions that mutants replace"]
    assert patched.place
    assert line(patched.place).startswith("def node_ports(")


def test_a_topic_shows_what_its_clauses_show_each_once() -> None:
    shown = entry("node-port").sections
    assert "_loopback_serves" in texts(shown["oracle"])
    assert [item.text for item in shown["proxy"]].count("node_ports") == 1
    assert "configuration.localhost-on" in texts(shown["mutants"])
    files = [item.place.path for item in shown["files"] if item.place]
    assert {path.name for path in files} >= {"node_port.py", "node-port.md"}
    assert ROOT / "tests/mutants/node_port.py" in files


def test_rules_of_a_clause_are_those_that_mutants_take_away() -> None:
    shown = entry("source-ranges.outside-dropped").sections["rules"]
    assert "KUBE-PROXY-FIREWALL" in texts(shown)
    assert "FORWARD, KUBE-PROXY-FIREWALL (source-ranges.forwarded)" in texts(shown)


def test_deviations_of_bundled_subjects_are_shown_where_they_are_written() -> None:
    shown = entry("conntrack.udp.not-to-dead-endpoint-when-none-left").sections["deviations"]
    assert any(item.place and item.place.path.name == "kube-proxy.toml" for item in shown)
    assert "kube-proxy in iptables" in texts(shown)


def test_a_clause_of_histories_has_no_oracle() -> None:
    (item,) = entry(STALE).sections["oracle"]
    assert item.text.startswith("none: one packet cannot show it")


def test_without_a_repository_mutants_are_shown_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "repository", lambda: None)
    shown = entry(LOCALHOST).sections
    assert shown["mutants"] == shown["rules"] == (Item(NO_TESTS),)


def test_every_function_that_a_mutant_replaces_is_found() -> None:
    found = [
        (m, place) for clause in CLAUSES for m in mutants.mutants_of(ROOT, clause) for place in m.patched
    ]
    assert len({mutant.name for mutant, _ in found}) > 50
    lost = {
        mutant.name
        for mutant, place in found
        if not place.name or place.name.rpartition(".")[2] not in line(place)
    }
    assert lost == set()


def test_every_mutant_of_a_clause_is_shown_at_the_line_that_defines_it() -> None:
    shown = {(m.name, m.place) for clause in CLAUSES for m in mutants.mutants_of(ROOT, clause)}
    assert {name for name, _ in shown} == {wrong.name for wrong in MUTANTS if wrong.clauses}
    assert {place.path.parent for _, place in shown} == {ROOT / "tests/mutants"}


def test_names_that_mutants_share_are_resolved() -> None:
    shown = entry("external-policy.local.pods-reach-all-endpoints").sections["rules"]
    assert "KUBE-EXT- (shortcut.pods)" in texts(shown)


def test_a_regression_is_found_by_its_number() -> None:
    assert entry("139628").id == "R003"


def test_an_unknown_id_brings_those_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "show", "node-port.localhost.disabled.untuched"]) == 2
    assert f"  {LOCALHOST}: " in capsys.readouterr().err


def test_a_term_brings_the_ids_whose_sentence_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "show", "127.0.0.1"]) == 2
    assert f"  {LOCALHOST}: " in capsys.readouterr().err


def test_nothing_like_it_is_reported_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "show", "qqqq"]) == 2
    assert "`kproxy spec show` lists the topics" in capsys.readouterr().err


def test_json_has_every_item_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "show", "node-port.reaches-ready-endpoint", "-o", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["entries"]
    assert len(shown["cases"]) > 100
    assert all(case["place"].startswith("src/kproxy/conformance/cases/") for case in shown["cases"])


def test_text_shortens_long_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "show", "node-port.reaches-ready-endpoint"]) == 0
    assert "more with -o json" in capsys.readouterr().out


def test_without_an_id_the_topics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "show"]) == 0
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == list(TOPICS)


SOURCE = '''\
# about x.y, before it
def after() -> None:
    """Nothing: x.yy, x.y-z, w.x.y."""


class Of:
    def method(self) -> None:
        """``x.y`` in a docstring."""


TABLE = ()
"""By x.y."""
'''


def test_citations_are_whole_and_named_by_the_innermost_definition(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    assert [(p.name, p.line) for p in places.citations(tmp_path, "x.y")] == [
        ("after", 2),
        ("Of.method", 7),
        ("TABLE", 11),
    ]
