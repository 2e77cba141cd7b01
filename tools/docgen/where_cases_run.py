"""docs/where-cases-run.md: for each case the testbeds that can run it: simulator, network namespaces, containers, cluster."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable
from kproxy.conformance.testbeds.simulator import Simulator
from tests.kind.selection import selected
from tools.docgen.tables import COMMAND, markdown_table

HEAD = f"""\
<!-- Generated: edit tools/docgen/where_cases_run.py or tests/kind/selection.py, then run `{COMMAND}`. -->

# Where each case runs

- **netns**: `kproxy conformance run`. Every case, on a kernel with the subsystems that it needs ([the lab](lab.md)).
- **simulator**: kproxy's own rules, evaluated in memory.
- **containers**: [`nox -s kind`](kind.md). The same lab; each node is a container that runs kproxy's image.
- **cluster**: [`kproxy conformance cluster`](kind.md#the-catalogue-in-a-cluster), in a dual-stack cluster with SCTP whose nodes are in two zones: *of two* nodes; *of three* or more, where the host of a third node
  is the client outside; *with clients outside* that belong to the harness."""

SHAPES = (ClusterShape(), ClusterShape(neighbour=True), ClusterShape(outside=True))
COLUMNS = ("netns", "simulator", "containers", "cluster of two", "of three", "with clients outside")


def page() -> str:
    """The whole page: counts by group, then every case."""
    contained = {case.id for case in selected()}
    groups: dict[str, list[Case]] = {}
    for case in CATALOGUE:
        groups.setdefault(case.group, []).append(case)
    rows = [_counts(f"`{name}`", members, contained) for name, members in groups.items()]
    rows.append(_counts("all", CATALOGUE, contained))
    parts = [
        HEAD,
        markdown_table("## By group", ("group", *COLUMNS), rows),
        markdown_table("## By case", ("case", *COLUMNS), (_case(case, contained) for case in CATALOGUE)),
    ]
    return "\n\n".join(parts) + "\n"


def _lacks(case: Case) -> str | None:
    """Reason why the simulator cannot run a case in any mode; None where it can."""
    return Simulator(case.profile).not_runnable_reason(case)


def _counts(name: str, cases: Sequence[Case], contained: set[str]) -> tuple[str, ...]:
    simulated = sum(_lacks(case) is None for case in cases)
    in_cluster = (str(sum(case_not_runnable(case, shape) is None for case in cases)) for shape in SHAPES)
    return (
        *(name, str(len(cases)), str(simulated), str(sum(case.id in contained for case in cases))),
        *in_cluster,
    )


def _case(case: Case, contained: set[str]) -> tuple[str, ...]:
    slow = "yes, with `--slow`" if case.slow else "yes"
    in_cluster = (case_not_runnable(case, shape) or "yes" for shape in SHAPES)
    return f"`{case.id}`", slow, _lacks(case) or "yes", "yes" if case.id in contained else "", *in_cluster
