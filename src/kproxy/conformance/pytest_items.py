"""The catalogue as pytest's items: ``pytest --pyargs kproxy.conformance --proxy mine.toml``.

Each case is an item, or one for each mode that is judged.  Those that are chosen are run at once, by processes of the
harness as `kproxy conformance run` starts them; then each item reports what came of it.
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

_HERE = Path(__file__).parent
_SUBJECT = pytest.StashKey[Subject]()
_UNKNOWN_BINARY = "kproxy-binary-not-given"
"""Of a subject whose cases are only listed."""


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """What came of a case; ``refused``: why its run could not be had here."""

    entry: CaseResult
    report: Report
    refused: str


class CaseItem(pytest.Item):
    """A case in one run."""

    case: Case
    run: str
    verdict: CaseVerdict | None = None

    def setup(self) -> None:
        """What could not be observed is an error, and no failure."""
        assert self.verdict
        if self.verdict.refused or self.verdict.entry.result is Result.BROKEN:
            pytest.fail(self.verdict.refused or self.verdict.entry.reason, pytrace=False)

    def runtest(self) -> None:
        """Report what came of it."""
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
        """Where it is from."""
        return self.path, None, self.name


class CatalogueDirectory(pytest.Directory):
    """The package as pytest sees it: cases, and no files."""

    def collect(self) -> Iterator[CaseItem]:
        """An item for each case in each run."""
        options = _run_options(self.config)
        runs = modes.runs_by_mode(options, self.config.stash[_SUBJECT])
        for run in runs:
            for case in CATALOGUE:
                name = f"{case.id}[{modes.run_name(run)}]" if len(runs) > 1 else case.id
                item = CaseItem.from_parent(self, name=name, nodeid=f"kproxy.conformance::{name}")
                item.case, item.run = case, modes.run_name(run)
                for mark in _marks(case):
                    item.add_marker(getattr(pytest.mark, mark))
                yield item


class ConformancePlugin:
    """pytest's hooks, once somebody asks for the catalogue."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Groups and features are marks; what cannot be judged is refused before anything is collected."""
        config.stash[_SUBJECT] = _subject(config, _run_options(config))
        for mark in sorted({mark for case in CATALOGUE for mark in _marks(case)}):
            config.addinivalue_line("markers", f"{mark}: cases of this group or feature")

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """The package is no folder of test files."""
        return CatalogueDirectory.from_parent(parent, path=path) if path == _HERE else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Slow cases are left out unless they are asked for."""
        slow = [item for item in items if isinstance(item, CaseItem) and item.case.slow]
        if slow and not config.getoption("slow"):
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Run all that was chosen, before pytest asks item by item."""
        chosen = [item for item in session.items if isinstance(item, CaseItem)]
        if chosen and not session.config.option.collectonly and not session.testsfailed:
            _run(session.config, chosen)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """An item takes as long as its case did."""
        report = yield
        if isinstance(item, CaseItem) and item.verdict and call.when == "call":
            report.duration = item.verdict.entry.seconds
        return report


def register_plugin(config: pytest.Config, parser: pytest.Parser) -> None:
    """Add options and hooks."""
    group = parser.getgroup("kproxy", "kproxy conformance (the options of `kproxy conformance run`)")
    for option, default in _VALUE_OPTIONS.items():
        group.addoption(
            f"--{option}", default=default, help=f"as of `kproxy conformance run` (default: {default!r})"
        )
    group.addoption("--slow", action="store_true", help="also cases that must wait for real time to pass")
    group.addoption("--patience", type=float, default=0.0, help="seconds the subject has to apply changes")
    config.pluginmanager.register(ConformancePlugin(), "kproxy-conformance")


_VALUE_OPTIONS = {
    "proxy": "kproxy",
    "binary": "",
    "mode": "",
    "testbed": "netns",
    "kernel": "auto",
    "iptables": "auto",
    "xfails": "",
    "evidence": "evidence",
}


def _marks(case: Case) -> list[str]:
    slow = ["slow"] if case.slow else []
    return [case.group, *slow, *sorted(feature.value for feature in case.features)]


def _run_options(config: pytest.Config) -> RunOptions:
    given = {option: config.getoption(option) for option in _VALUE_OPTIONS}
    evidence = Path(given.pop("evidence"))
    return RunOptions(
        **given, evidence=evidence, patience=config.getoption("patience"), slow=config.getoption("slow")
    )


def _subject(config: pytest.Config, options: RunOptions) -> Subject:
    """Who is judged; without its program if cases are only listed.  Raises `pytest.UsageError`."""
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
    """The choice for a run; nothing when it is the usual one."""
    usual = [case.id for case in CATALOGUE if options.slow or not case.slow]
    ids = [case.id for case in cases]
    return () if ids == usual else tuple(ids)


def _verdicts(outcomes: Iterable[RunOutcome]) -> Mapping[tuple[str, str], CaseVerdict]:
    return {
        (outcome.name, entry.case.id): CaseVerdict(entry, outcome.report, outcome.refusal)
        for outcome in outcomes
        for entry in outcome.report.results
    }
