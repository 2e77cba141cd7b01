"""Results that tests of reports share."""

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.case import Apply, Case
from kproxy.conformance.engine.judging import Finding, Observed
from kproxy.conformance.reports import results_document
from kproxy.conformance.reports.comparison import Comparison, compare_runs
from kproxy.conformance.reports.results import CaseResult, Report, Result, RunOutcome
from kproxy.conformance.reports.results_reader import DocumentRead, parse_results
from kproxy.model.network import Family
from tests.support.scripted_testbed import TO_WEB, WEB, small_case

CASE = small_case(Apply(WEB), TO_WEB, id="group.one", clauses={"b.second", "a.first"})
FINDING = Finding(
    bind_cases([CASE])[0],
    2,
    "pod a2 -> web cluster ip",
    "delivered to b1 (source preserved)",
    "TCP RST",
    ("a.first",),
)
SEEN = Observed(
    family=Family.IPV4,
    step=2,
    what="pod a2 -> web cluster ip",
    lawful="delivered to a1 (source preserved)",
    seen="TCP RST",
    at=0.5,
    seconds=0.25,
)


def result(kind: Result, case: Case = CASE) -> CaseResult:
    match kind:
        case Result.PASSED:
            return CaseResult(case=case, result=kind, seconds=0.25)
        case Result.FAILED | Result.DEVIATION:
            return CaseResult(
                case=case,
                result=kind,
                seconds=1.0,
                reason="why",
                findings=(FINDING,),
                evidence="evidence/one",
                files=("IPv4/objects.json",),
                observed=(SEEN,),
            )
        case _:
            return CaseResult(case=case, result=kind, seconds=0.0, reason="why")


def report(*results: CaseResult) -> Report:
    return Report(
        subject="my-proxy",
        mode="ebpf",
        environment={"kernel": "6.1"},
        results=results,
        seconds=2.0,
        reproduce_command="kproxy conformance run --proxy my.toml --mode ebpf",
    )


def outcome(name: str, *results: CaseResult, **environment: str) -> RunOutcome:
    """Outcome of one run of several."""
    mode = name.partition(" ")[0]
    run = Report(subject="my-proxy", mode=mode, environment=environment, results=results, seconds=1.0)
    return RunOutcome(name=name, report=run)


def read(*outcomes: RunOutcome, subject: str = "my-proxy", where: str = "r.json") -> DocumentRead:
    """The reports as read back from their JSON."""
    return parse_results(
        results_document.format_document(results_document.matrix_document(subject, outcomes, 2.0)), where
    )


def compared(*outcomes: RunOutcome) -> Comparison:
    """Comparison of the reports."""
    return compare_runs([read(*outcomes)])
