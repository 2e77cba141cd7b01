"""What is written where, by ``run`` and by ``report``, as a person starts them."""

import json
from pathlib import Path

import pytest
from junitparser import JUnitXml

from kproxy.cli import main
from kproxy.conformance.reports.outputs import OutputError, Outputs

RUN = ("conformance", "run", "--testbed", "simulator", "--case", "no-endpoints.*")


def test_a_run_writes_every_form_that_is_requested(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("json", "junit", "markdown")}
    arguments = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main([*RUN, "--mode", "nftables", *arguments]) == 0
    results = json.loads(files["json"].read_bytes())["results"]
    (suite,) = list(JUnitXml.fromfile(str(files["junit"])))
    assert suite.tests == len(results) > 0
    assert "| kproxy nftables |" in files["markdown"].read_text(encoding="utf-8")


def test_what_goes_to_standard_output_goes_there_alone(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main([*RUN, "--mode", "nftables", "--junit", "-"]) == 0
    reported = capfdbinary.readouterr()
    assert reported.out.startswith(b"<?xml")
    assert b"kproxy (nftables)" in reported.err


def test_report_prints_the_same_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{mode}.json" for mode in ("iptables", "nftables")]
    for path in paths:
        main([*RUN, "--mode", path.stem, "--json", str(path), "--junit", str(path.with_suffix(".xml"))])
    capsys.readouterr()
    assert main(["conformance", "report", *map(str, paths), "--junit", str(tmp_path / "both.xml")]) == 0
    assert "none of " in capsys.readouterr().out
    alone = [JUnitXml.fromfile(str(path.with_suffix(".xml"))) for path in paths]
    both = JUnitXml.fromfile(str(tmp_path / "both.xml"))
    assert [(suite.name, suite.tests) for suite in both] == [(s.name, s.tests) for one in alone for s in one]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["/no/such.json"], "/no/such.json: No such file"),
        (["/no/such.json", "--html", "/"], "--html /: this is a folder; give the path of a file"),
        (
            ["/no/such.json", "--junit", "/no/such/folder/x"],
            "--junit /no/such/folder/x: the folder /no/such/folder does not exist",
        ),
    ],
)
def test_report_reports_what_it_cannot_do(
    arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", "report", *arguments]) == 2
    assert reported in capsys.readouterr().err


def test_report_needs_a_file_or_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["conformance", "report"])
    assert "give at least one FILE.json, or --schema" in capsys.readouterr().err
    assert main(["conformance", "report", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$defs"]["result"]


def test_one_form_alone_can_go_to_standard_output() -> None:
    with pytest.raises(OutputError, match="all but one the path of a file"):
        Outputs(json="-", markdown="-").check()
    Outputs(json="-").check()
