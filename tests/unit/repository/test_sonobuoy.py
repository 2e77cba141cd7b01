"""The plugin of Sonobuoy: its definition, and the files that a container leaves for Sonobuoy's worker."""

import os
import re
import signal
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from junitparser import JUnitXml

from kproxy.cli import build_parser
from kproxy.conformance.testbeds.cluster import sonobuoy
from kproxy.conformance.testbeds.cluster.agent import __name__ as agent_module
from kproxy.conformance.testbeds.cluster.pods import PYTHON
from tests.support.paths import ROOT
from tests.support.waiting import eventually

DEFINITION: dict[str, Any] = yaml.safe_load((ROOT / "deploy/sonobuoy/kproxy.yaml").read_text())
CONTAINER = DEFINITION["spec"]
KNOWN = {
    *("driver", "plugin-name", "result-format", "result-files", "skip-cleanup", "description", "source_url"),
    "order",
}
"""Fields of ``sonobuoy-config`` (pkg/plugin/manifest of Sonobuoy 0.57)."""


def pod(container: dict[str, Any]) -> dict[str, Any]:
    """The pod that Sonobuoy makes: it adds the volume and its worker."""
    volumes = [{"name": "results", "emptyDir": {}}]
    spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plugin"}, "spec": spec}


def arguments() -> list[str]:
    """The arguments as the kubelet expands them."""
    values = {one["name"]: one["value"] for one in CONTAINER["env"]}
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], word) for word in CONTAINER["args"]]


def handed_over(results: Path) -> dict[str, bytes]:
    """What the worker would send: the files of the archive that ``done`` names."""
    named = Path((results / "done").read_text())
    with tarfile.open(named) as archive:
        return {
            member.name: file.read()
            for member in archive.getmembers()
            if member.isfile() and (file := archive.extractfile(member)) is not None
        }


def test_the_definition_has_a_container_that_kubernetes_knows() -> None:
    kubernetes_validate.validate(pod(CONTAINER), "1.36", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod({**CONTAINER, "entrypoint": []}), "1.36", strict=True)


def test_the_definition_names_a_job_whose_results_are_junit() -> None:
    found = DEFINITION["sonobuoy-config"]
    assert (found["driver"], found["plugin-name"], found["result-format"]) == ("Job", "kproxy", "junit")
    assert set(found) <= KNOWN
    (mount,) = CONTAINER["volumeMounts"]
    assert mount == {"name": "results", "mountPath": sonobuoy.DEFAULT_RESULTS}


def test_the_program_is_the_module_and_takes_these_arguments() -> None:
    package = agent_module.rpartition(".")[0]
    assert CONTAINER["command"] == [PYTHON, "-m", f"{package}.sonobuoy"]
    parsed = build_parser().parse_args(["conformance", "cluster", *arguments()])
    assert (parsed.proxy, parsed.mode) == ("kube-proxy", "iptables")
    assert parsed.image == CONTAINER["image"]


def test_a_run_that_judges_nothing_is_handed_over_as_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    status = sonobuoy.judge_for_sonobuoy(
        [*arguments(), f"--kubeconfig={tmp_path}/nowhere"], {"SONOBUOY_RESULTS_DIR": str(tmp_path)}
    )
    files = handed_over(tmp_path)
    assert status == 2
    assert f"kubeconfig {tmp_path}/nowhere".encode() in files["kproxy.log"]
    (suite,) = JUnitXml.fromroot(JUnitXml.fromstring(files["junit.xml"])._elem)
    (test,) = suite
    (error,) = test.result
    assert (suite.tests, suite.errors) == (1, 1)
    assert error.message == "no case was judged: exit status 2"
    assert "give --kubeconfig FILE" in " ".join(error.text.split())


def judge(tmp_path: Path, text: str) -> list[str]:
    """A command in the place of ``kproxy conformance cluster``."""
    (tmp_path / "judge.py").write_text(f"import pathlib, signal, sys\n{text}")
    return [sys.executable, str(tmp_path / "judge.py")]


def test_results_and_evidence_are_handed_over(tmp_path: Path) -> None:
    command = judge(
        tmp_path,
        "given = dict(zip(sys.argv, sys.argv[1:]))\n"
        "pathlib.Path(given['--junit']).write_text('<testsuite/>')\n"
        "pathlib.Path(given['--json']).write_text('{}')\n"
        "pathlib.Path(given['--evidence'], 'case').mkdir(parents=True)\n"
        "pathlib.Path(given['--evidence'], 'case', 'a.nft.txt').write_text('rules')\n"
        "print(sys.argv[1]); sys.exit(1)\n",
    )
    results = tmp_path / "results"
    status = sonobuoy.judge_for_sonobuoy(["--mode=iptables"], {"SONOBUOY_RESULTS_DIR": str(results)}, command)
    files = handed_over(results)
    assert status == 1
    assert files["junit.xml"] == b"<testsuite/>"
    assert files["kproxy.log"] == b"--mode=iptables\n"
    assert set(files) == {"junit.xml", "results.json", "kproxy.log", "evidence/case/a.nft.txt"}


def test_a_plugin_that_is_stopped_stops_its_run_and_hands_over(tmp_path: Path) -> None:
    command = judge(
        tmp_path,
        "signal.signal(signal.SIGTERM, lambda *_: (print('namespace removed', flush=True), sys.exit(130)))\n"
        f"pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        "signal.pause()\n",
    )

    def stop() -> None:
        if eventually((tmp_path / "begun").exists):
            os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    status = sonobuoy.judge_for_sonobuoy([], {"SONOBUOY_RESULTS_DIR": str(tmp_path)}, command)
    stopper.join()
    assert status == 130
    assert handed_over(tmp_path)["kproxy.log"] == b"namespace removed\n"


def test_a_log_that_xml_cannot_write_is_handed_over_all_the_same(tmp_path: Path) -> None:
    script = "import sys; print('\\x1b[31mred\\x00'); sys.exit(2)"
    judge = (sys.executable, "-c", script)
    assert sonobuoy.judge_for_sonobuoy([], {"SONOBUOY_RESULTS_DIR": str(tmp_path)}, judge) == 2
    files = handed_over(tmp_path)
    assert b"\x1b[31mred\x00" in files["kproxy.log"]
    suite = JUnitXml.fromstring(files["junit.xml"])
    assert "\ufffd[31mred\ufffd" in files["junit.xml"].decode()
    assert suite.errors == 1
