"""Wrong input, a row for each: exit status 2 at once, one message that names the option, file or name, and nothing else printed.

Those of `kproxy conformance run` and of subject files are in `test_errors`, the daemon's (status 1, as kube-proxy's) in its own tests.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.lab.cluster import session
from kproxy.lab.cluster.cluster import PREFIX
from kproxy.lab.kernels.rootless import survey_rootless
from kproxy.tools.trace.live import check_interface
from kproxy.tools.trace.query import CannotTrace
from tests.support.paths import ROOT

FILES = {
    "text.txt": b"hello\n",
    "broken.yaml": b"a: [1\n",
    "items.yaml": b"kind: List\nitems: 5\n",
    "ports.yaml": b"kind: Service\napiVersion: v1\nmetadata: {name: x}\nspec: {ports: 7}\n",
    "binary.yaml": b"\xff\xfe\x00",
    "broken.json": b'{"a":',
    "other.json": b'{"schema": "x"}',
}
EXPLAIN = "spec explain -f c.yaml --from host/node-b --to svc/web:80"
PACKET = "--from host/node-b --to svc/web:80"
TRACE = "trace --from host --to"
PAIR = "--a kproxy:iptables --b kproxy:nftables"
CLUSTER = "conformance cluster --mode nftables --agent-image i"
FUZZ = "conformance fuzz --testbed simulator --worlds 1"
FETCH = "lab cluster fetch --assets d"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of every wrong kind, a good dump (``c.yaml``) and an empty folder (``d``)."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "d").mkdir()
    shutil.copy(ROOT / "docs/examples/cluster.yaml", tmp_path / "c.yaml")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def status_of(arguments: str) -> int:
    """Exit status of a command, also where argparse ends it."""
    try:
        return main(arguments.split())
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # files of objects
        (f"spec explain -f none.yaml {PACKET}", "-f none.yaml: No such file"),
        (f"spec explain -f d {PACKET}", "-f d: Is a directory"),
        (f"spec explain -f broken.yaml {PACKET}", "broken.yaml: neither YAML nor JSON: line 2, column 1"),
        (f"spec explain -f items.yaml {PACKET}", "items.yaml: the items of a List are no list"),
        (f"spec explain -f ports.yaml {PACKET}", "ports.yaml: no valid Service is in it: Expected `array | null`, got `int`"),
        (f"spec explain -f binary.yaml {PACKET}", "binary.yaml: neither YAML nor JSON"),
        (f"spec explain -f text.txt {PACKET}", "text.txt: that is no Kubernetes object"),
        ("lab up -f c.yaml --cluster-cidr x", "--cluster-cidr x: that is no range"),
        ("lab up -f c.yaml --node-port-addresses 10.0.0.0/99", "--node-port-addresses 10.0.0.0/99: that is no range"),
        # senders, targets, addresses
        ("spec explain -f c.yaml --from host/nope --to svc/web:80", "--from host/nope: there is no node nope"),
        ("spec explain -f c.yaml --from pod/nope --to svc/web:80", "--from pod/nope: there is no pod nope"),
        ("spec explain -f c.yaml --from 10.1.1 --to svc/web:80", "--from 10.1.1: give pod/NAME"),
        ("spec explain -f c.yaml --from host/node-b --to svc/nope:53", "--to svc/nope:53: there is no Service nope"),
        ("spec explain -f c.yaml --from host/node-b --to svc/web:99999", "--to: 99999 is no port number"),
        ("spec explain -f c.yaml --from host/node-b --to 10.96.0.999:53", "--to 10.96.0.999: give svc/NAME:PORT"),
        ("spec explain -f c.yaml --from host/node-b --to svc/web:80/icmp", "protocols are tcp, udp and sctp"),
        (f"{EXPLAIN} --cluster-cidr x", "--cluster-cidr x: that is no range"),
        (f"{EXPLAIN} --node-port-addresses x", "--node-port-addresses x: that is no range"),
        (f"{EXPLAIN} --node-address x", "--node-address x: that is no address"),
        (f"{EXPLAIN} --node nope", "--node nope: there is no node nope; there are node-a, node-b"),
        (f"{EXPLAIN} --mode nope", "--mode: unknown value nope"),
        (f"{TRACE} 1.2.3.4:5 -f none.txt", "-f none.txt: No such file"),
        (f"{TRACE} 1.2.3.4:5 -f d", "-f d: Is a directory"),
        (f"{TRACE} 1.2.3.4:5 -f text.txt", "-f text.txt: nothing that can be read here"),
        (f"{TRACE} 1.2.3.4:5 -f broken.yaml", "broken.yaml"),
        # names
        ("spec show nope.nope", "has the ID nope.nope"),
        ("conformance show nope", "no case has the ID nope"),
        ("conformance list --case nope", "--case: no case matches nope"),
        ("conformance list --regression nope", "--regression nope"),
        ("compare -f c.yaml --a nope:iptables --b kproxy:nftables", "proxy nope: No such file"),
        ("compare -f c.yaml --a kproxy:nope --b kproxy:nftables", "kproxy:nope: kproxy has the modes"),
        ("lab up -f c.yaml --proxy nope", "proxy nope: No such file"),
        ("lab up -f c.yaml --mode nope", "kproxy:nope: kproxy has the modes"),
        ("lab exec --name nope node/node-a -- true", "no lab called nope"),
        ("lab kubectl --name nope get svc", "no lab called nope"),
        ("lab down --name nope", "no lab called nope"),
        ("lab cluster exec --name nope client -- true", "no cluster called nope"),
        ("lab cluster kubectl --name nope get svc", "no cluster called nope"),
        ("lab cluster kubeconfig --name nope", "no cluster called nope"),
        ("lab cluster down --name nope", "no cluster called nope"),
        ("lab cluster up --nodes 99 --assets d", "a cluster has 1 to 9 nodes, not 99"),
        ("lab cluster up --assets none", "kubelet, kubectl in none"),
        ("lab cluster up --proxy nope.toml --assets d", "proxy nope.toml: No such file"),
        ("conformance run --mode nope", "--mode nope: kproxy has"),
        ("conformance run --kernel nope", "--kernel: unknown value nope"),
        (f"{FUZZ} --mode nope", "--mode nope: kproxy has"),
        (f"{FUZZ} --proxy nope", "proxy nope: No such file"),
        (f"{FUZZ} --against nope", "proxy nope: No such file"),
        (f"{FUZZ} --world 9", "--world 9: there is no such world"),
        ("simulate --mode nope", "--mode nope: kproxy has"),
        ("simulate --proxy nope", "proxy nope: No such file"),
        ("completion fish", "unknown value fish"),
        # programs and kernels
        ("conformance run --binary /no/such", "/no/such is not a program that can be run: give --binary PATH"),
        ("conformance run --proxy kube-proxy --binary d", "d is not a program that can be run: give --binary PATH"),
        ("conformance run --proxy kube-proxy --binary ./text.txt", "text.txt is not a program that can be run"),
        ("conformance fuzz --binary /no/such", "/no/such is not a program that can be run: give --binary PATH"),
        ("conformance fuzz --against kube-proxy --against-binary /no/such", "/no/such is not a program"),
        ("simulate --binary /no/such", "/no/such is not a program that can be run: give --binary PATH"),
        (f"compare -f c.yaml {PAIR} --binary /no/such", "/no/such is not a program"),
        ("lab up -f c.yaml --proxy kube-proxy --binary /no/such", "/no/such is not a program"),
        ("lab doctor --uml-kernel /no/such", "/no/such (--uml-kernel) is not a User-Mode Linux kernel: No such file"),
        ("simulate --other-proxy nope", "proxy nope: No such file"),
        ("simulate --other-binary /bin/true", "--other-binary: the commands of kproxy have no {binary}"),
        ("simulate --uml-kernel /no/such", "/no/such (--uml-kernel) is not a User-Mode Linux kernel: No such file"),
        # numbers and times
        ("conformance run --maxfail 0", "--maxfail: 0: give a whole number, 1 or more"),
        ("conformance run --memory x", "--memory: x: give a whole number, 1 or more"),
        ("conformance run --sync-timeout -1", "--sync-timeout: -1: give a number of seconds"),
        ("conformance run --sync-timeout x", "--sync-timeout: x: give a number of seconds"),
        ("conformance fuzz --seed x", "--seed: invalid int value: 'x'"),
        ("lab kernel build --jobs -3", "--jobs: -3: give a whole number"),
        ("simulate --seeds x", "--seeds: x: give a number, or a range"),
        ("simulate --shard 3/2", "--shard: 3/2: give a part"),
        ("simulate --length 10", "--length: 10: give 30 seconds or more"),
        ("simulate --length 60 --other-binary /bin/true", "--length: another version is run in the calm"),
        ("simulate --length 60 --replay text.txt", "--length: a schedule of a file is played as it is"),
        ("simulate --until -1", "--until: -1: give a number of seconds"),
        ("simulate --shell", "give --until SECONDS"),
        ("simulate --exec nope --until 1", "--exec: nope: give a namespace and a command"),
        # servers
        (f"{FETCH} --url http://127.0.0.1:1", "http://127.0.0.1:1/v1.36.2/bin/linux/"),
        (f"{FETCH} --url ftp://x", "--url ftp://x: give an address"),
        (f"{FETCH} --version x", "--version x: give three numbers"),
        ("lab cluster fetch", "--assets"),
        # what is written
        ("spec show cluster-ip --output d", "--output d: Is a directory"),
        ("spec show cluster-ip --output none/file", "--output none/file: No such file"),
        ("lab cluster fetch --assets text.txt/x", "--assets text.txt/x: Not a directory"),
        ("conformance run --evidence text.txt/x", "--evidence: text.txt/x: "),
        ("conformance run --evidence text.txt", "text.txt is a file; give a folder"),
        ("conformance run --json d", "--json d: this is a folder"),
        ("conformance run -o json --output none/x", "--json none/x: the folder"),
        ("conformance fuzz --out text.txt/x", "--out: text.txt/x: "),
        (f"compare -f c.yaml {PAIR} --export text.txt/x", "--export: text.txt/x: "),
        ("simulate --out text.txt/x", "--out: text.txt/x: "),
        ("simulate --results d", "--results: d: this is a folder"),
        ("simulate --results none/x", "--results: none/x: there is no folder"),
        # what is read
        ("conformance run --case-file none.py", "--case-file none.py: No such file"),
        ("conformance run --case-file d", "--case-file d: Is a directory"),
        ("conformance run --case-file text.txt", "text.txt: it assigns no case to WORLD"),
        ("conformance run --xfails d", "--xfails d: Is a directory"),
        ("conformance report none.json", "none.json: No such file"),
        ("conformance report d", "d: Is a directory"),
        ("conformance report broken.json", "broken.json: Input data was truncated"),
        ("conformance report text.txt", "text.txt: JSON is malformed"),
        ("conformance report", "give at least one FILE.json"),
        ("conformance verify none.json", "none.json: No such file"),
        ("conformance verify other.json", "other.json: it has no field `format`"),
        ("simulate --replay none.py", "--replay none.py: No such file"),
        ("simulate --replay d", "--replay d: Is a directory"),
        ("simulate --replay text.txt", "text.txt: it assigns no schedule to SCHEDULE"),
        (f"{CLUSTER} --kubeconfig none", "kubeconfig none: "),
        (f"{CLUSTER} --client nope --kubeconfig none", "--client and --remote go together"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(arguments: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(arguments) == 2
    streams = capfd.readouterr()
    assert message in streams.err
    assert "Traceback" not in streams.err
    assert streams.out == ""


def test_the_right_input_of_the_table_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    """Control: the dump, the packet, and a folder that can be written to."""
    assert status_of(EXPLAIN) == 0
    assert status_of(f"{FUZZ} --seed 1 --world 0 --out d/made") == 0
    assert "1 passed" in capfd.readouterr().out


def test_an_interface_that_is_not_there_is_refused() -> None:
    check_interface("lo")
    with pytest.raises(CannotTrace, match=r"--via nope: there is no such interface here; there are .*lo"):
        check_interface("nope")


def test_a_python_that_this_user_may_not_execute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert survey_rootless(()).unusable == "/no/such/python: No such file or directory"


def test_a_cluster_of_another_user_is_not_ours_to_look_at(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> bool:
        raise PermissionError

    (place / f"{PREFIX}1").mkdir()
    monkeypatch.setattr(session, "HOME", place)
    monkeypatch.setattr(Path, "exists", forbidden)
    assert session.remove_abandoned() == []
