"""``kproxy run`` as a process, as far as it goes without a kernel: what it prints, writes, and why it ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer
from pathlib import Path

import pytest
import yaml

from kproxy import __version__
from tests.support.certificates import make, speak_tls
from tests.support.scripted_apiserver import Answer, Script, serving
from tests.support.waiting import eventually

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
UNTOUCHED = (
    "--oom-score-adj=500",
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0",
    "--conntrack-tcp-timeout-close-wait=0",
)
"""These processes run on the machine itself: nothing of it is set but what concerns the process alone."""


def argv(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import sys; from kproxy.cli import main; sys.exit(main())",
        "run",
        *arguments,
    ]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv(*arguments), capture_output=True, text=True, timeout=30, check=False)


@contextmanager
def running(
    *arguments: str, wrap: Callable[[HTTPServer], None] | None = None
) -> Iterator[tuple[subprocess.Popen[str], Script]]:
    """The daemon in front of an API server that has nothing for it."""
    with serving(Answer([b"{}"], 503), wrap=wrap) as script:
        every = [f"--master={script.url}", *UNTOUCHED, *arguments]
        with subprocess.Popen(argv(*every), stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process, script
            finally:
                process.kill()


def test_the_version_is_one_line_and_comes_before_everything_else() -> None:
    ended = run("--version", "--config=/nowhere")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"kproxy {__version__}\n", "")


def test_help_goes_to_standard_output() -> None:
    ended = run("-h")
    assert ended.returncode == 0
    assert "--proxy-mode string" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("serve",), "takes no arguments"),
        (("--no-such",), "unknown flag: --no-such"),
        (("--proxy-port-range=1-2",), "--proxy-port-range is gone"),
        (("--proxymode=nftables",), "unknown flag: --proxymode; did you mean --proxy-mode?"),
        (("--config=/nowhere",), "kproxy run: --config /nowhere: No such file or directory"),
        (("--kubeconfig=/nowhere",), "kubeconfig /nowhere: No such file or directory"),
        ((), "no API server: give --kubeconfig FILE"),
        (("--master=ftp://x",), "--master ftp://x: 'ftp://x' is no URL of a server"),
        (("--master=127.0.0.1:1x",), "--master 127.0.0.1:1x: "),
        (("--proxy-mode=ebpf",), 'mode: "ebpf"'),
        (("--metrics-port=0",), "metricsBindAddress"),
    ],
)
def test_what_cannot_be_run_is_status_1_and_reports_why(arguments: tuple[str, ...], complaint: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == 1
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_what_is_written_is_the_same_configuration_and_nothing_is_started(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    flags = ("--proxy-mode=nftables", "--cluster-cidr=10.0.0.0/8", "--hostname-override=N1", "-v=4")
    assert run(*flags, f"--write-config-to={first}").returncode == 0
    written = yaml.safe_load(first.read_text())
    assert (written["kind"], written["mode"]) == ("KubeProxyConfiguration", "nftables")
    assert (written["clusterCIDR"], written["hostnameOverride"]) == ("10.0.0.0/8", "n1")
    assert run(f"--config={first}", f"--write-config-to={second}").returncode == 0
    assert second.read_text() == first.read_text()


def test_writing_comes_before_cleaning_up(tmp_path: Path) -> None:
    assert run("--cleanup", f"--write-config-to={tmp_path}/file").returncode == 0
    assert (tmp_path / "file").exists()


def test_an_invalid_configuration_is_not_written(tmp_path: Path) -> None:
    target = tmp_path / "file"
    assert run("--oom-score-adj=2000", f"--write-config-to={target}").returncode == 1
    assert not target.exists()


def test_a_file_that_cannot_be_written_is_status_1() -> None:
    ended = run("--write-config-to=/nowhere/file")
    assert ended.returncode == 1
    assert "/nowhere/file" in ended.stderr


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("kind: [x\n", "neither YAML nor JSON: line 2, column 1: "),
        (
            "mode: nftables\n",
            "no apiVersion and kind: need `apiVersion: kubeproxy.config.k8s.io/v1alpha1` and `kind: ",
        ),
        (HEAD + "mode: 7\n", "mode: 7: Expected `str`, got `int`"),
    ],
)
def test_what_is_wrong_in_a_file_names_the_file(text: str, reported: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    ended = run(f"--config={config}", f"--write-config-to={tmp_path}/out")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"kproxy run: --config {config}: {reported}")
    assert ended.stderr.count("\n") == 1


def test_a_misspelt_field_names_the_file_and_what_was_meant(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(HEAD + "modes: nftables\n")
    ended = run(f"--config={config}", f"--write-config-to={tmp_path}/out")
    assert ended.returncode == 0
    assert f'configuration {config}: unknown field "modes"; did you mean "mode"?' in ended.stderr


def test_a_server_that_does_not_answer_is_named() -> None:
    closed = "http://127.0.0.1:1"
    with subprocess.Popen(
        argv(f"--master={closed}", *UNTOUCHED), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        lines = iter(process.stderr.readline, "")
        assert any(f"services: watch of {closed} broken off (1 in a row): " in line for line in lines)
        process.terminate()


def test_what_strict_reading_refuses_is_logged(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(HEAD + "foo: bar\nmode: iptables\nmode: nftables\n")
    ended = run(f"--config={config}", "--proxy-mode=ipvs", f"--write-config-to={tmp_path}/out")
    assert ended.returncode == 0
    assert 'unknown field "foo"' in ended.stderr
    assert 'key "mode" is given twice' in ended.stderr
    assert "--proxy-mode does not count beside --config" in ended.stderr


def test_json_lines_are_json(tmp_path: Path) -> None:
    ended = run("--logging-format=json", f"--write-config-to={tmp_path}/file")
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert line["msg"] == "wrote configuration"
    assert line["file"] == f"{tmp_path}/file"


def test_the_master_flag_has_the_address_of_the_api_server() -> None:
    with running("--hostname-override=n1") as (process, script):
        assert eventually(lambda: len(script.requested) >= 3)
        assert process.poll() is None
    assert {path for path, _ in script.requested} >= {"/api/v1/services", "/api/v1/nodes"}


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_master_flag_beats_the_kubeconfig_whose_token_is_used(tmp_path: Path, scheme: str) -> None:
    make(tmp_path, "IP:127.0.0.1", "server")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}],"
        " users: [{name: u, user: {token: abc}}]}"
    )
    wrap = partial(speak_tls, tmp_path) if scheme == "https" else None
    with running(f"--kubeconfig={kubeconfig}", wrap=wrap) as (_, script):
        assert eventually(lambda: len(script.requested) >= 3)
    assert script.headers[0].get("Authorization") == ("Bearer abc" if scheme == "https" else None)


def test_the_process_is_as_likely_to_be_killed_as_it_was_reported() -> None:
    with running() as (process, script):
        assert eventually(lambda: script.requested)
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "500"
    assert Path("/proc/self/oom_score_adj").read_text().strip() != "500"


def test_a_changed_file_ends_the_daemon_with_status_1(tmp_path: Path) -> None:
    config = tmp_path / "config"
    text = (
        HEAD
        + "oomScoreAdj: 500\nconntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n"
    )
    config.write_text(text)
    with running(f"--config={config}") as (process, script):
        assert eventually(lambda: script.requested)
        os.utime(config)
        time.sleep(1.5)
        assert process.poll() is None, "the same content is no change"
        config.write_text(text + "mode: nftables\n")
        assert process.wait(10) == 1
        assert process.stderr is not None
        assert f"the configuration file {config} changed" in process.stderr.read()
