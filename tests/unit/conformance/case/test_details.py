"""`kproxy conformance show` and `--dry-run`: all about a case, and what a run would do."""

from __future__ import annotations

import pytest
import yaml

from kproxy.cli import main
from kproxy.conformance.case import Case
from kproxy.conformance.case.details import case_lines
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import dry_run, matrix
from kproxy.conformance.options import RunOptions
from kproxy.conformance.subjects.subject import load_subject
from kproxy.lab.kernels.abilities import Ability
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import ClauseId
from kproxy.spec.regressions import REGRESSIONS

KPROXY = load_subject("kproxy")


@pytest.mark.parametrize("case", CATALOGUE, ids=lambda case: case.id)
def test_a_case_is_shown_with_its_clauses_reports_steps_and_objects(case: Case) -> None:
    text = "\n".join(case_lines(case, "", [KPROXY]))
    assert text.startswith(case.id)
    for clause in case.clauses:
        assert clause in text
        assert all(source in text for source in CLAUSES[ClauseId(clause)].source)
    assert all(address in text for name in case.regressions for _, address in REGRESSIONS[name].links)
    assert f"  {len(case.steps)}. " in text


def test_objects_are_yaml_that_kubectl_would_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "show", "cluster-ip.every-endpoint-of-six"]) == 0
    out = capsys.readouterr().out
    indented = [line[5:] for line in out.splitlines() if line.startswith("     ")]
    documents = list(yaml.safe_load_all("\n".join(indented[indented.index("---") :])))
    assert {document["kind"] for document in documents} == {"Service", "EndpointSlice"}


def test_what_the_simulator_cannot_run_and_who_deviates_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["conformance", "show", "affinity.time-runs-out"]) == 0
    out = capsys.readouterr().out
    assert "the simulator has no Wait: it needs time" in out
    assert "kproxy      deviates in ipvs at step 18 (affinity.timeout.frees-choice): IPVS keeps" in out


def test_a_deviation_is_wrapped_and_has_its_link_on_a_line_of_its_own() -> None:
    (case,) = [case for case in CATALOGUE if case.id == "internal-policy.drops-without-local-endpoint"]
    lines = list(case_lines(case, "", [load_subject("kube-proxy", "kube-proxy")]))
    text = "deviates in ipvs at steps 2, 3, 5, 6 (internal-policy.local.drop-without-local-endpoint,"
    (first,) = [number for number, line in enumerate(lines) if line == f"  kube-proxy  {text}"]
    shown = lines[first : lines.index(f"  run it      kproxy conformance run --case '{case.id}'")]
    assert all(len(line) <= 118 for line in shown)
    assert shown[1].startswith(
        " " * 14 + "internal-policy.local.same-node) and at step 4 (cluster-ip.from-outside"
    )
    assert shown[-1].startswith(" " * 14 + "https://")
    assert len([line for line in shown if "https://" in line]) == 1


def test_what_several_modes_have_in_common_is_shown_once() -> None:
    (case,) = [case for case in CATALOGUE if case.id == "conntrack.udp-leaves-a-deleted-service"]
    shown = "\n".join(case_lines(case, "", [load_subject("kube-proxy", "kube-proxy")]))
    assert "deviates in iptables, nftables at step 6 (conntrack.udp.not-to" in shown
    assert shown.count("deviates in") == 1


def test_a_slow_case_is_reported_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "show", "proxy-health.of-a-quiet-cluster"]) == 0
    assert "proxy-health.of-a-quiet-cluster (slow)" in capsys.readouterr().out


def test_a_name_that_is_wrong_is_status_2_and_names_its_neighbours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["conformance", "show", "cluster-ip.every-endpoint-of-sixx"]) == 2
    assert "did you mean cluster-ip.every-endpoint-of-six" in capsys.readouterr().err


def test_a_dry_run_reports_the_order_and_why_cases_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--testbed",
        "simulator",
        "--mode",
        "nftables",
        "--case",
        "node-port.l*",
        "--case",
        "restart.f*",
    )
    assert main(["conformance", "run", "--dry-run", *arguments]) == 0
    reported = capsys.readouterr().out.splitlines()
    assert reported[:2] == ["kproxy nftables", "  in the simulator"]
    assert "    node-port.localhost-by-default" in reported
    assert (
        "  not run: restart.flows-go-on: the simulator has no Open: it follows a connection beyond its first packet"
        in reported
    )
    reason = "the simulator has no sockets, by which a relay serves loopback"
    assert f"  not run: node-port.localhost-serves-when-asked-to: {reason}" in reported


def test_a_dry_run_reports_of_slow_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "run", "--dry-run", "--testbed", "simulator", "--mode", "iptables"]) == 0
    assert (
        "  not run: proxy-health.of-a-quiet-cluster: slow, and not requested (--slow)"
        in capsys.readouterr().out
    )


def test_a_dry_run_leaves_out_what_needs_sockets_that_the_kernel_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = matrix.PlannedRun(
        options=RunOptions(), placement="kernel: host", missing_needs=frozenset({frozenset({Ability.SCTP})})
    )
    monkeypatch.setattr(matrix, "plan_runs", lambda *_: [run])
    sctp = [case for case in CATALOGUE if case.id.startswith("protocols.sctp")]
    reported = list(dry_run.dry_run_lines([run.options], KPROXY, sctp, lambda _: ""))
    assert "  not run: protocols.sctp-node-port: the kernel has no sctp" in reported
    assert "    protocols.sctp-without-sockets" in reported


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("ipvs", "  not run: restart.another-mode-before: the kernel has no nftables"),
        ("nftables", "    restart.another-mode-before"),
    ],
)
def test_a_dry_run_leaves_out_what_needs_a_mode_that_the_kernel_lacks(
    monkeypatch: pytest.MonkeyPatch, mode: str, line: str
) -> None:
    lacking = frozenset({frozenset({Ability.NFTABLES})})
    run = matrix.PlannedRun(options=RunOptions(mode=mode), placement="kernel: uml", missing_needs=lacking)
    monkeypatch.setattr(matrix, "plan_runs", lambda *_: [run])
    (case,) = [case for case in CATALOGUE if case.id == "restart.another-mode-before"]
    reported = list(dry_run.dry_run_lines([run.options], KPROXY, [case], lambda _: ""))
    assert [one for one in reported if case.id in one] == [line]
