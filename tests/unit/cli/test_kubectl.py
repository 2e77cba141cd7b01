"""The plugin of kubectl, by a stand-in for kubectl that prints recorded objects and rules, and records how it was called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli.kubectl import Arguments, split_arguments
from tests.support.paths import ROOT

STAND_IN = """\
#!/bin/sh
echo "$*" >>"$FOLDER/called"
case "$*" in
    *servicecidrs*) [ -e "$FOLDER/old" ] && { echo 'error: the server does not have a resource type "servicecidrs"' >&2; exit 1; } ;;
esac
case "$*" in
    *nowhere*) echo 'error: context "nowhere" does not exist' >&2; exit 1 ;;
    *"get pods"*k8s-app=kube-proxy*node-b*) printf 'kube-system/kube-proxy-x\\n' ;;
    *"get pods"*) ;;
    *"get pod "*) printf kube-proxy ;;
    *"get node "*) printf 172.18.0.3 ;;
    *iptables-save) case "$*" in *ip6*) exit 127 ;; esac; cat "$EXAMPLES/trace/iptables-save.txt" ;;
    *" exec "* | exec*) echo "no such program" >&2; exit 127 ;;
    *) cat "$FOLDER/cluster.json" ;;
esac
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-in, first on PATH."""
    program = tmp_path / "kubectl"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("EXAMPLES", str(ROOT / "docs/examples"))
    (tmp_path / "cluster.json").write_text((ROOT / "docs/examples/cluster.yaml").read_text())
    return tmp_path


def plugin(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kproxy", "kubectl", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("given", "split"),
    [
        (["explain", "--context", "c", "--from", "host"], Arguments(("--context=c",), "", ("explain", "--from", "host"))),
        (["--kubeconfig=f", "compare"], Arguments(("--kubeconfig=f",), "", ("compare",))),
        (["trace", "--node", "n", "--to", "x"], Arguments((), "n", ("trace", "--to", "x"))),
        (["explain", "--node", "n"], Arguments((), "", ("explain", "--node", "n"))),
        (["lab", "exec", "pod/a", "--", "curl", "--user", "u"], Arguments((), "", ("lab", "exec", "pod/a", "--", "curl", "--user", "u"))),
    ],
)  # fmt: skip
def test_kubectls_own_options_are_kubectls(given: list[str], split: Arguments) -> None:
    assert split_arguments(given) == split


def test_explain_is_that_of_a_dump(place: Path) -> None:
    packet = ("--from", "host/node-a", "--to", "svc/web:80")
    dump = str(ROOT / "docs/examples/cluster.yaml")
    by_file = subprocess.run(
        [sys.executable, "-m", "kproxy", "spec", "explain", "-f", dump, *packet],
        capture_output=True,
        text=True,
        check=False,
    )
    live = plugin("--context", "here", "explain", *packet)
    assert (live.returncode, live.stdout) == (by_file.returncode, by_file.stdout)
    assert "lawful" in live.stdout, live.stderr
    assert (
        place / "called"
    ).read_text() == "--context=here get services,endpointslices,nodes,servicecidrs -A -o json\n"


def test_a_server_without_service_cidrs_is_read_without_them(place: Path) -> None:
    (place / "old").touch()
    done = plugin("explain", "--from", "host/node-a", "--to", "svc/web:80")
    assert done.returncode == 0, done.stderr
    assert (place / "called").read_text().splitlines()[-1] == "get services,endpointslices,nodes -A -o json"


def test_trace_reads_the_rules_that_the_nodes_proxy_shows(place: Path) -> None:
    done = plugin(
        "trace", "--node", "node-b", "--from", "10.244.1.11", "--to", "10.96.4.0:80", "--via", "veth-a1"
    )
    assert done.returncode == 0, done.stderr
    assert "DNAT to 10.244.1.11:10000" in done.stdout
    assert "exec -n kube-system kube-proxy-x -c kube-proxy -- iptables-save" in (place / "called").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trace", "--from", "host", "--to", "1.2.3.4:5"), "kubectl kproxy trace: --node NAME: the node whose rules are read"),
        (("trace", "--node", "node-z", "--from", "host", "--to", "1.2.3.4:5"), "node node-z has no pod labelled k8s-app=kube-proxy"),
        (("--context=nowhere", "explain", "--from", "host", "--to", "svc/web"), 'kubectl kproxy explain: error: context "nowhere" does not exist'),
        (("explan",), "kubectl kproxy: unknown command explan; did you mean explain?"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("place")
def test_what_cannot_be_read_is_named(arguments: tuple[str, ...], message: str) -> None:
    done = plugin(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_help_queries_no_cluster(place: Path) -> None:
    assert "kubectl kproxy explain --from" in plugin("--help").stdout
    assert "--from SENDER" in plugin("explain", "--help").stdout
    assert not (place / "called").exists()
