"""The command line of the harness: what is selected, and what is refused before anything runs."""

import json
import re
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from kproxy.cli import main
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.command import ConformanceRunError, matching_cases, run_conformance, select_cases
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results_document import catalogue_document
from kproxy.spec.topics import TOPICS, Topic, topic_of_case

SLOW = [case.id for case in CATALOGUE if case.slow]


def simulate(*arguments: str, proxy: str = "kproxy") -> int:
    fixed = ("--testbed", "simulator", "--mode", "iptables")
    return main(["conformance", "run", *fixed, "--proxy", proxy, *arguments])


# ------------------------------------------------------------------------------ selection


def test_without_a_glob_all_but_slow_cases_are_run_in_order() -> None:
    assert [case.id for case in select_cases((), slow=False)] == [c.id for c in CATALOGUE if not c.slow]
    assert select_cases((), slow=True) == list(CATALOGUE)
    assert SLOW


def test_globs_add_up_in_the_order_of_the_catalogue() -> None:
    ids = [case.id for case in select_cases(("restart.*", "cluster-ip.*"), slow=False)]
    groups = [id.partition(".")[0] for id in ids]
    assert set(groups) == {"cluster-ip", "restart"}
    assert groups == sorted(groups)


def test_a_slow_case_is_run_when_named_exactly() -> None:
    assert [case.id for case in select_cases((SLOW[0],), slow=False)] == [SLOW[0]]


def test_a_glob_that_matches_slow_cases_only_reports_what_to_add() -> None:
    with pytest.raises(ConformanceRunError, match="--slow"):
        select_cases((SLOW[0][:-1] + "*",), slow=False)


def test_a_glob_that_matches_nothing_is_refused_beside_one_that_does() -> None:
    with pytest.raises(ConformanceRunError, match=r"no case matches typo\.\*"):
        matching_cases(("cluster-ip.*", "typo.*"))


def test_what_is_skipped_is_left_out() -> None:
    kept = [
        case.id
        for case in select_cases(("cluster-ip.*",), ("*.slices-*", "cluster-ip.reached-*"), slow=False)
    ]
    assert kept == [
        case.id
        for case in select_cases(("cluster-ip.*",), slow=False)
        if not re.search(r"\.(slices|reached)-", case.id)
    ]
    assert "cluster-ip.slices-are-merged" in {case.id for case in CATALOGUE}


@pytest.mark.parametrize(
    "topic", [topic for topic in TOPICS.values() if topic.groups], ids=attrgetter("name")
)
def test_the_name_of_a_topic_selects_its_cases(topic: Topic) -> None:
    cases = [case for case in CATALOGUE if topic_of_case(case.id) is topic]
    assert matching_cases((topic.name,)) == cases
    assert matching_cases((), (topic.name,)) == [case for case in CATALOGUE if case not in cases]


def test_a_topic_may_be_written_as_a_glob_unless_it_is_one_of_ids() -> None:
    assert matching_cases(("change.*",)) == matching_cases(("convergence.*",))
    assert {case.group for case in matching_cases(("conntrack.*",))} == {"conntrack"}


def test_a_topic_without_cases_is_refused() -> None:
    with pytest.raises(ConformanceRunError, match="no case matches metrics"):
        matching_cases(("metrics",))


@pytest.mark.parametrize(
    ("globs", "skips", "reported"),
    [
        ((), ("typo.*",), r"--skip: no case matches typo\.\*"),
        (("cluster-ip.*",), ("cluster-*",), r"--skip: nothing is left without cluster-\*"),
        (("cluster-ip.slices-are-mergd",), (), r"did you mean cluster-ip\.slices-are-merged\?"),
        (("clusterip.*",), (), r"did you mean 'cluster-ip\.\*'\?"),
    ],
)
def test_what_selects_nothing_is_refused_with_what_is_near(
    globs: tuple[str, ...], skips: tuple[str, ...], reported: str
) -> None:
    with pytest.raises(ConformanceRunError, match=reported):
        select_cases(globs, skips, slow=False)


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (RunOptions(globs=("no.such-case",)), "no case matches no.such-case; `kproxy conformance list`"),
        (RunOptions(mode="ebpf"), "--mode ebpf: kproxy has iptables"),
        (
            RunOptions(proxy="no-such-proxy"),
            "give one of kproxy, kube-proxy, kube-router, or the path of a subject file",
        ),
        (RunOptions(proxy="kube-proxy"), "give --binary PATH"),
        (
            RunOptions(proxy="kube-proxy", binary="/bin/true", testbed="simulator"),
            "cannot run kube-proxy; use --testbed netns",
        ),
        (RunOptions(json="/no/such/folder/results.json"), "--json /no/such/folder/results.json"),
        (RunOptions(json="/"), "--json /"),
    ],
)
def test_what_cannot_be_run_is_status_2_and_reports_what_to_do(
    options: RunOptions, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_conformance(options) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith("kproxy conformance: ")
    assert text in streams.err
    assert streams.out == ""


def test_without_root_the_namespaces_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kproxy.conformance.testbeds.environment.os.geteuid", lambda: 1000)
    assert run_conformance(RunOptions()) == 2
    assert "need root" in capsys.readouterr().err


def test_a_program_that_is_missing_is_reported_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kproxy.conformance.testbeds.environment.os.geteuid", lambda: 0)
    monkeypatch.setattr("kproxy.conformance.testbeds.environment._which", lambda _: None)
    assert run_conformance(RunOptions()) == 2
    assert "apt-get install iproute2" in capsys.readouterr().err


def test_a_subject_whose_program_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kproxy.conformance.testbeds.environment.missing_prerequisites", list)
    assert run_conformance(RunOptions(proxy="kube-proxy", binary="/no/such/kube-proxy")) == 2
    assert "/no/such/kube-proxy is not a program" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("--parallel", "0"), ("--parallel", "x"), ("--sync-timeout", "0"), ("--sync-timeout", "nan")],
)
def test_numbers_that_make_no_sense_are_status_2(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        simulate(*arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


# ------------------------------------------------------------------------------ running


def test_a_run_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    assert simulate("--case", "no-endpoints.cluster-ip-*", "--json", str(results)) == 0
    document = json.loads(results.read_text(encoding="utf-8"))
    ids = [case.id for case in CATALOGUE if case.id.startswith("no-endpoints.cluster-ip-")]
    assert [entry["id"] for entry in document["results"]] == ids
    assert "passed" in capsys.readouterr().out


def test_json_on_standard_output_is_nothing_but_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert simulate("--case", "cluster-ip.*", "--json", "-") == 0
    streams = capfdbinary.readouterr()
    assert json.loads(streams.out)["subject"] == "kproxy"
    assert b"passed" in streams.err


def test_a_form_and_a_file_are_the_option_of_that_form(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    results = tmp_path / "results.yaml"
    assert simulate("--case", "cluster-ip.*", "-o", "yaml", "--output", str(results)) == 0
    capfdbinary.readouterr()
    assert simulate("--case", "cluster-ip.*", "-o", "json") == 0
    printed, written = json.loads(capfdbinary.readouterr().out), yaml.safe_load(results.read_text("utf-8"))
    assert [(e["id"], e["result"]) for e in written["results"]] == [
        (e["id"], e["result"]) for e in printed["results"]
    ]


def test_a_seed_repeats_an_order_and_loses_no_case(tmp_path: Path) -> None:
    def order(seed: str) -> list[str]:
        path = tmp_path / "results.json"
        simulate("--case", "cluster-ip.*", "--shuffle", seed, "--json", str(path))
        return [entry["id"] for entry in json.loads(path.read_text(encoding="utf-8"))["results"]]

    first = order("7")
    assert order("7") == first
    assert order("8") != first
    assert sorted(order("8")) == sorted(first)


# ------------------------------------------------------------------------------ failures


def test_the_cases_that_failed_last_are_run_again_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "xfails"
    listed.write_text(
        "cluster-ip.slices-are-merged  # it passes, so this list makes it fail\n", encoding="utf-8"
    )
    here = ("--evidence", str(tmp_path / "evidence"))
    assert simulate("--last-failed", *here) == 2
    assert "last-failed.json knows no failure of kproxy in this mode" in capsys.readouterr().err
    assert simulate("--case", "cluster-ip.slices-*", *here) == 0
    assert not (tmp_path / "evidence").exists(), "a run without a failure leaves no folder"
    assert simulate("--case", "cluster-ip.*", "--xfails", str(listed), *here) == 1
    assert simulate("--last-failed", "--json", str(tmp_path / "again.json"), *here) == 0
    document = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert [entry["id"] for entry in document["results"]] == ["cluster-ip.slices-are-merged"]
    capsys.readouterr()
    assert simulate("--last-failed", *here) == 0
    assert "nothing failed in the last run" in capsys.readouterr().out


def test_a_spoilt_memory_of_failures_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "last-failed.json").write_text("{", encoding="utf-8")
    assert simulate("--last-failed", "--evidence", str(tmp_path)) == 2
    assert "run it without --last-failed first" in capsys.readouterr().err


# ------------------------------------------------------------------------------ list


def test_the_list_has_a_line_for_each_case_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == [case.id for case in CATALOGUE]
    assert lines[-1] == f"{len(CATALOGUE)} cases"
    assert [line.split()[0] for line in lines if line.endswith("(slow)")] == SLOW


def test_the_list_as_json_is_the_catalogue(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["conformance", "list", "-o", "json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == catalogue_document(CATALOGUE)


def test_the_list_takes_globs_and_refuses_those_that_match_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["conformance", "list", "--case", SLOW[0]]) == 0
    assert SLOW[0] in capsys.readouterr().out
    assert main(["conformance", "list", "--case", "typo"]) == 2
    assert "no case matches typo" in capsys.readouterr().err
