"""The catalogue as items of pytest: ``pytest --pyargs kproxy.conformance --proxy mine.toml``.

Each case is an item, or an item for each mode.  The selected items are run together, by the processes that
`kproxy conformance run` starts; then each item reports its verdict.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import live_status, matrix, modes
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.console import failure_lines
from kproxy.conformance.reports.results import CaseResult, Report, Result, RunOutcome
from kproxy.conformance.subjects.expected_failures import InvalidXfails, read_xfails
from kproxy.conformance.subjects.subject import InvalidSubject, Subject, check_mode, load_subject
from kproxy.console import Console
from kproxy.options.arguments import add_options
from kproxy.options.option import OptionUser
from kproxy.options.table import options_of

_HERE = Path(__file__).parent
_SUBJECT = pytest.StashKey[Subject]()
_UNKNOWN_BINARY = "kproxy-binary-not-given"
"""Binary of a subject whose cases are only listed."""


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """Verdict on a case; ``refused``: why its run is impossible on this machine."""

    entry: CaseResult
    report: Report
    refused: str


class CaseItem(pytest.Item):
    """A case in one run."""

    case: Case
    run: str
    verdict: CaseVerdict | None = None

    def setup(self) -> None:
        """Report a case that could not be observed as an error, not as a failure."""
        assert self.verdict
        if self.verdict.refused or self.verdict.entry.result is Result.BROKEN:
            pytest.fail(self.verdict.refused or self.verdict.entry.reason, pytrace=False)

    def runtest(self) -> None:
        """Report the verdict."""
        assert self.verdict
        entry = self.verdict.entry
        match entry.result:
            case Result.FAILED:
                pytest.fail("\n".join(failure_lines(entry, self.verdict.report)), pytrace=False)
            case Result.DEVIATION:
                pytest.xfail(entry.reason)
            case Result.UNSUPPORTED | Result.NOT_RUNNABLE:
                pytest.skip(entry.reason)
            case _:
                pass

    def reportinfo(self) -> tuple[Path, None, str]:
        """The package, and a headline that does not end as the node ID does, or pytest would print the ID with `::` for its dots."""
        return self.path, None, f"{self.name}: {self.case.about}"


class CatalogueDirectory(pytest.Directory):
    """The package as a directory of pytest: it holds cases, not files."""

    def collect(self) -> Iterator[CaseItem]:
        """An item for each case in each run."""
        options = _run_options(self.config)
        runs = modes.runs_by_mode(options, self.config.stash[_SUBJECT])
        for run in runs:
            for case in CATALOGUE:
                name = f"{case.id}[{modes.run_folder(run)}]" if len(runs) > 1 else case.id
                item = CaseItem.from_parent(self, name=name, nodeid=f"kproxy.conformance::{name}")
                item.case, item.run = case, modes.run_name(run)
                for mark in _marks(case):
                    item.add_marker(getattr(pytest.mark, mark))
                yield item


@dataclass(frozen=True, slots=True)
class ConformancePlugin:
    """Hooks of pytest, registered when the catalogue is requested; ``names``: of items that are asked for, all if empty."""

    names: frozenset[str]

    def pytest_configure(self, config: pytest.Config) -> None:
        """Make groups and features marks; refuse an invalid subject before anything is collected."""
        config.stash[_SUBJECT] = _subject(config, _run_options(config))
        for mark in sorted({mark for case in CATALOGUE for mark in _marks(case)}):
            config.addinivalue_line("markers", f"{mark}: cases of this group or feature")

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect the package as `CatalogueDirectory`, not as a folder of test files."""
        return CatalogueDirectory.from_parent(parent, path=path) if path == _HERE else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect items that are not asked for.  Raises `pytest.UsageError` for a name that no item has."""
        if unknown := self.names - {name for item in items for name in _names(item)}:
            raise pytest.UsageError(
                f"no item of kproxy.conformance has the name {' or '.join(sorted(unknown))}"
            )
        others = [item for item in items if isinstance(item, CaseItem) and self._is_other(config, item)]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item not in others]

    def _is_other(self, config: pytest.Config, item: CaseItem) -> bool:
        """True for an item that is not asked for; a slow one is by its name, or by ``--slow``."""
        if self.names:
            return self.names.isdisjoint(_names(item))
        return item.case.slow and not config.getoption("slow")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Run all selected cases, before pytest runs item by item."""
        chosen = [item for item in session.items if isinstance(item, CaseItem)]
        if chosen and not session.config.option.collectonly and not session.testsfailed:
            _run(session.config, chosen)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give an item the duration of its case."""
        report = yield
        if isinstance(item, CaseItem) and item.verdict and call.when == "call":
            report.duration = item.verdict.entry.seconds
        return report


def register_plugin(config: pytest.Config, parser: pytest.Parser, names: frozenset[str]) -> None:
    """Add options and hooks; ``names``: of items that are asked for by node IDs, all if empty."""
    group = parser.getgroup("kproxy", "kproxy conformance (as of `kproxy conformance run`)")
    add_options(group.addoption, OptionUser.PYTEST)
    config.pluginmanager.register(ConformancePlugin(names), "kproxy-conformance")


def _names(item: pytest.Item) -> set[str]:
    """Names by which an item is asked for: its own, and without the run that of its case."""
    return {item.name, item.case.id} if isinstance(item, CaseItem) else {item.name}


def _marks(case: Case) -> list[str]:
    slow = ["slow"] if case.slow else []
    return [case.group, *slow, *sorted(feature.value for feature in case.features)]


def _run_options(config: pytest.Config) -> RunOptions:
    names = [option.destination for option in options_of(OptionUser.PYTEST)]
    return RunOptions(**{name: config.getoption(name) for name in names})


def _subject(config: pytest.Config, options: RunOptions) -> Subject:
    """The subject; its program may be missing if cases are only listed.  Raises `pytest.UsageError`."""
    listed = config.option.collectonly
    try:
        read_xfails(options.xfails)
        subject = load_subject(options.proxy, options.binary or (_UNKNOWN_BINARY if listed else ""))
        check_mode(subject, options.mode)
    except (InvalidSubject, InvalidXfails) as reason:
        raise pytest.UsageError(str(reason)) from reason
    return subject


def _run(config: pytest.Config, chosen: Sequence[CaseItem]) -> None:
    options = _run_options(config)
    subject = config.stash[_SUBJECT]
    cases = {name: [i.case for i in chosen if i.run == name] for name in dict.fromkeys(i.run for i in chosen)}
    wanted = [
        replace(run, globs=_globs(cases[modes.run_name(run)], options))
        for run in modes.runs_by_mode(options, subject)
        if modes.run_name(run) in cases
    ]
    union = list({case.id: case for case in (item.case for item in chosen)}.values())
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        console = Console(quiet=config.option.verbose < 0 or not Console().is_interactive)
        runs = matrix.plan_runs(wanted, union)
        for place in matrix.describe_placements(runs):
            config.get_terminal_writer().line(f"\n{place}")
        with live_status.live_status(console, [run.name for run in runs]) as board:
            outcomes = matrix.run_matrix(runs, subject, union, board)
    verdicts = _verdicts(outcomes)
    for item in chosen:
        item.verdict = verdicts[item.run, item.case.id]


def _globs(cases: Sequence[Case], options: RunOptions) -> tuple[str, ...]:
    """IDs of the cases of a run; empty when they are those of the default selection."""
    default = [case.id for case in CATALOGUE if options.slow or not case.slow]
    ids = [case.id for case in cases]
    return () if ids == default else tuple(ids)


def _verdicts(outcomes: Iterable[RunOutcome]) -> Mapping[tuple[str, str], CaseVerdict]:
    return {
        (outcome.name, entry.case.id): CaseVerdict(entry, outcome.report, outcome.refusal)
        for outcome in outcomes
        for entry in outcome.report.results
    }
