"""The command as a process, as far as it goes without touching a kernel: what it refuses, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kproxy.proxy.backends import BACKENDS
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.main import node_name
from tests.support.scripted_apiserver import Answer, serving

HEAD = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
oomScoreAdj: 500
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
"""
"""These processes run on the machine itself: nothing of it is set but what concerns the process alone."""


def command(folder: Path, text: str, *flags: str) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(text)
    program = "import sys; from kproxy.cli import main; sys.exit(main())"
    return [sys.executable, "-c", program, "run", "--config", str(path), *flags]


def run(folder: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    return subprocess.run(
        command(folder, text, *flags),
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
        check=False,
    )


def test_every_bad_field_is_named_before_anything_is_touched(tmp_path: Path) -> None:
    ended = run(tmp_path, HEAD.replace("500", "2000") + "mode: ebpf\n")
    assert ended.returncode == 1
    assert "mode" in ended.stderr
    assert "oomScoreAdj" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "flags", "complaint"),
    [
        (HEAD, (), "KUBERNETES_SERVICE_HOST"),
        (HEAD + "clientConnection: {kubeconfig: /nowhere}", (), "/nowhere"),
        (HEAD, ("--hostname-override", " "), "--hostname-override"),
        (HEAD + "hostnameOverride: ' '", (), "hostnameOverride"),
    ],
    ids=["no API server", "no kubeconfig", "blank name", "blank name in the file"],
)
def test_what_cannot_run_reports_why(
    tmp_path: Path, text: str, flags: tuple[str, ...], complaint: str
) -> None:
    ended = run(tmp_path, text, *flags)
    assert ended.returncode == 1
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_waits_for_an_api_server_and_ends_well_when_instructed_to(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(Answer([b"{}"], 503)) as script:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
            f" clusters: [{{name: c, cluster: {{server: '{script.url}'}}}}]}}"
        )
        argv = command(tmp_path, HEAD + f"clientConnection: {{kubeconfig: {kubeconfig}}}\n")
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + 20
            while len(script.requested) < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert process.poll() is None
            process.send_signal(number)
            started = time.monotonic()
            assert process.wait(10) == 0
            assert time.monotonic() - started < 2
    assert {path for path, _ in script.requested} == {
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/api/v1/nodes",
    }


def test_a_node_without_a_configured_name_has_the_machines() -> None:
    assert node_name(Configuration(hostname_override=" From-File ")) == "from-file"
    assert node_name(Configuration()) == os.uname().nodename.strip().lower()


HEAVY = {"asyncio", "aiohttp", "rich", "pyroute2", "urllib3", "kubernetes", "kproxy.lab"}
ONLY_A_DAEMONS = {
    "prometheus_client",
    "http.server",
    "kproxy.proxy.plan",
    "kproxy.proxy.snapshot",
}
BACKEND_PACKAGES = {module.rpartition(".")[0] for module in BACKENDS.values()}
"""None of them is imported before the mode is known, and then no other."""


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("kproxy.proxy.daemon.command", HEAVY | ONLY_A_DAEMONS | BACKEND_PACKAGES),
        ("kproxy.proxy.daemon.startup", HEAVY | BACKEND_PACKAGES),
    ],
    ids=["to read flags", "to serve"],
)
def test_only_what_is_needed_is_imported(module: str, without: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(printed.split())
    assert module in loaded
    assert not loaded & without


@pytest.mark.parametrize("mode", BACKENDS)
def test_a_daemon_in_one_mode_imports_no_other_backend(mode: str) -> None:
    program = (
        "import sys, kproxy.proxy.daemon.startup; from kproxy.proxy.backends import find_backend; "
        f"find_backend({mode!r}).load(); print(*sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert BACKEND_PACKAGES & set(printed.split()) == {BACKENDS[mode].rpartition(".")[0]}
