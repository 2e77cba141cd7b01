"""``kproxy spec explain``: what kubectl prints and what people type, as a question to the oracle."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.cli import main
from tests.support.paths import ROOT

EXAMPLE = ROOT / "docs/examples/cluster.yaml"


def example() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(EXAMPLE.read_text())["items"]
    del found[0]["metadata"]["creationTimestamp"]  # PyYAML makes a date of it, which json cannot write
    return found


def explain(capsys: pytest.CaptureFixture[str], *arguments: str, file: Path = EXAMPLE) -> dict[str, Any]:
    assert main(["spec", "explain", "-f", str(file), "-o", "json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == "kproxy-explanation/2"
    return found


def outcomes(answer: dict[str, Any], hop: int = 0) -> list[str]:
    """Where to, and whether the source is kept, as ``10.0.0.1:80 preserved``; or the failure."""
    return [
        f"{one['address']}:{one['port']} {one['source']}" if one["outcome"] == "delivered" else one["outcome"]
        for one in answer["hops"][hop]["outcomes"]
    ]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, file: Path = EXAMPLE) -> str:
    assert main(["spec", "explain", "-f", str(file), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


LAWFUL = [
    # sender, target, the node it is judged at, the lawful outcomes by the documents that the clauses cite
    ("pod/web-1", "svc/web:80", "node-a", ["10.244.1.11:8080 preserved"]),
    ("pod/web-0", "svc/web:http", "node-a", ["10.244.1.11:8080 masqueraded"]),  # hairpin
    ("pod/default/web-1", "svc/default/web", "node-a", ["10.244.1.11:8080 preserved"]),
    ("10.244.2.9", "10.96.0.80:80", "node-b", ["10.244.1.11:8080 preserved"]),
    ("host/node-b", "svc/web:80", "node-b", ["10.244.1.11:8080 masqueraded"]),
    ("client", "node/node-a:30080", "node-a", ["10.244.1.11:8080 preserved"]),
    ("client/198.51.100.3", "node/node-b:30080", "node-b", ["dropped"]),
    ("host/node-b", "svc/dns:53/udp", "node-b", ["rejected"]),
    ("host/node-b", "svc/dns:dns-tcp", "node-b", ["rejected"]),
    ("pod/web-0", "8.8.8.8:53/udp", "node-a", ["untouched"]),
    ("pod/web-0", "pod/web-1:8080", "node-a", ["untouched"]),
    ("pod/web-0", "svc/web:81", "node-a", ["rejected", "untouched"]),
]


@pytest.mark.parametrize(("sender", "target", "node", "lawful"), LAWFUL)
def test_a_packet_has_these_lawful_outcomes(
    capsys: pytest.CaptureFixture[str], sender: str, target: str, node: str, lawful: list[str]
) -> None:
    answer = explain(capsys, "--from", sender, "--to", target)
    assert answer["hops"][0]["node"] == node
    assert outcomes(answer) == lawful


def test_what_the_first_node_must_leave_alone_is_judged_where_it_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = explain(capsys, "--from", "host/node-b", "--to", "node/node-a:30080")
    assert [hop["node"] for hop in answer["hops"]] == ["node-b", "node-a"]
    assert outcomes(answer, 0) == ["untouched"]
    assert outcomes(answer, 1) == ["10.244.1.11:8080 preserved"]


def test_every_clause_comes_with_level_text_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    clauses = explain(capsys, "--from", "client", "--to", "node/node-b:30080")["hops"][0]["clauses"]
    dropped = {clause["id"]: clause for clause in clauses}[
        "external-policy.local.drop-without-local-endpoint"
    ]
    assert dropped["level"] == "MUST"
    assert dropped["sentence"].endswith(".")
    assert all(link.startswith("https://") for link in dropped["sources"])


def test_text_has_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--from", "client", "--to", "node/node-a:30080")
    clauses = explain(capsys, *arguments)["hops"][0]["clauses"]
    assert main(["spec", "explain", "-f", str(EXAMPLE), *arguments]) == 0
    text = capsys.readouterr().out
    assert "delivered to 10.244.1.11:8080 (pod default/web-0 on node-a), which sees 203.0.113.1" in text
    for clause in clauses:
        assert f"{clause['level']:<6} {clause['id']}" in text
        assert all(link in text for link in clause["sources"])


# ------------------------------------------------------------------------------ options


def test_a_node_settles_where_a_clients_packet_comes_to(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--from", "client", "--to", "192.0.2.80:80")
    assert outcomes(explain(capsys, *arguments, "--node", "node-a")) == ["10.244.1.11:8080 preserved"]
    assert outcomes(explain(capsys, *arguments, "--node", "node-b")) == ["dropped"]
    assert "which node? Name it with --node; there are node-a, node-b" in refused(capsys, *arguments)


def test_a_mode_settles_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--from", "host/node-a", "--to", "127.0.0.1:30080")
    assert outcomes(explain(capsys, *arguments)) == ["10.244.1.11:8080 masqueraded", "untouched"]
    assert outcomes(explain(capsys, *arguments, "--mode", "iptables")) == ["10.244.1.11:8080 masqueraded"]
    assert outcomes(explain(capsys, *arguments, "--mode", "nftables")) == ["untouched"]
    assert outcomes(explain(capsys, *arguments, "--mode", "ipvs")) == ["untouched"]


def test_the_configuration_counts(capsys: pytest.CaptureFixture[str]) -> None:
    pod = ("--from", "pod/web-1", "--to", "svc/web:80")
    assert outcomes(explain(capsys, *pod, "--masquerade-all")) == ["10.244.1.11:8080 masqueraded"]
    assert outcomes(explain(capsys, *pod, "--cluster-cidr", "10.99.0.0/16")) == [
        "10.244.1.11:8080 masqueraded"
    ]
    second = ("--from", "client", "--to", "172.19.0.2:30080", "--node", "node-a")
    assert outcomes(explain(capsys, *second)) == ["untouched"]
    own = (*second, "--node-address", "172.19.0.2")
    assert outcomes(explain(capsys, *own, "--node-port-addresses", "172.19.0.0/24")) == [
        "10.244.1.11:8080 preserved"
    ]
    assert outcomes(explain(capsys, *own, "--node-port-addresses", "primary")) == ["untouched"]


# ------------------------------------------------------------------------------ dumps


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("form", ["json", "documents", "array", "typed lists"])
def test_a_dump_may_have_any_form_that_kubectl_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    items = example()
    lists = [
        {
            "kind": f"{kind}List",
            "items": [{k: v for k, v in i.items() if k != "kind"} for i in items if i["kind"] == kind],
        }
        for kind in ("Service", "EndpointSlice", "Node")
    ]
    texts = {
        "json": json.dumps({"kind": "List", "items": items}),
        "documents": yaml.safe_dump_all(items),
        "array": json.dumps(items),
        "typed lists": yaml.safe_dump_all(lists),
    }
    file = written(tmp_path / "dump", texts[form])
    answer = explain(capsys, "--from", "pod/web-1", "--to", "svc/web:80", file=file)
    assert outcomes(answer) == ["10.244.1.11:8080 preserved"]


def test_several_files_are_one_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    services = written(tmp_path / "a", json.dumps([i for i in example() if i["kind"] == "Service"]))
    rest = written(tmp_path / "b", json.dumps([i for i in example() if i["kind"] != "Service"]))
    arguments = ("-f", str(rest), "--from", "pod/web-1", "--to", "svc/web:80")
    assert outcomes(explain(capsys, *arguments, file=services)) == ["10.244.1.11:8080 preserved"]


def test_pod_objects_name_pods_that_are_no_endpoints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shell = {
        "kind": "Pod",
        "metadata": {"name": "shell", "namespace": "default"},
        "spec": {"nodeName": "node-b"},
        "status": {"podIPs": [{"ip": "10.244.2.7"}]},
    }
    agent = {
        **shell,
        "metadata": {"name": "agent", "namespace": "x"},
        "status": {"podIPs": [{"ip": "172.18.0.3"}]},
    }
    file = written(tmp_path / "dump", json.dumps([*example(), shell, agent]))
    assert outcomes(explain(capsys, "--from", "pod/shell", "--to", "svc/web", file=file)) == [
        "10.244.1.11:8080 preserved"
    ]
    on_host = explain(capsys, "--from", "pod/agent", "--to", "svc/web", file=file)
    assert on_host["packet"]["from"] == "pod x/agent (host network)"
    assert outcomes(on_host) == ["10.244.1.11:8080 masqueraded"]


def test_an_object_that_does_not_decode_is_reported_and_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = {"kind": "Service", "metadata": {"name": "odd", "namespace": "x"}, "spec": {"ports": 7}}
    file = written(tmp_path / "dump", json.dumps([*example(), broken]))
    assert main(["spec", "explain", "-f", str(file), "--from", "pod/web-1", "--to", "svc/web"]) == 0
    assert "Service x/odd is left out" in capsys.readouterr().err


# ------------------------------------------------------------------------------ what cannot be explained


@pytest.mark.parametrize(
    ("sender", "target", "message"),
    [
        ("nobody", "svc/web", "--from nobody: give pod/NAME"),
        ("pod/nobody", "svc/web", "there is no pod nobody in the dump; pods are known by"),
        ("host", "svc/web", "which node? Name it with --node; there are node-a, node-b"),
        ("host/node-z", "svc/web", "there is no node node-z; there are node-a, node-b"),
        ("client/nowhere", "svc/web", "--from nowhere: give pod/NAME"),
        ("pod/web-0", "svc/webb", "there is no Service webb in the dump"),
        ("pod/web-0", "svc/other/web", "there is no Service other/web in the dump"),
        ("pod/web-0", "web", "--to web: give svc/NAME:PORT"),
        ("pod/web-0", "10.96.0.80", "--to 10.96.0.80: give svc/NAME:PORT"),
        ("pod/web-0", "fd00::1", "--to fd00::1: give svc/NAME:PORT"),
        ("pod/web-0", "[fd00::1]:80", "pod default/web-0 and fd00::1 have no family in common"),
        ("pod/web-0", "svc/web:https", "which port of Service default/web? It has http 80/tcp"),
        ("pod/web-0", "svc/dns:53", "which port of Service kube-system/dns? It has dns 53/udp, dns-tcp 53/tcp"),
        ("pod/web-0", "svc/dns:53/icmp", "/icmp: protocols are tcp, udp and sctp"),
        ("pod/web-0", "10.96.0.80:99999", "99999 is no port number"),
    ],
)  # fmt: skip
def test_what_is_not_understood_reports_what_would_be(
    capsys: pytest.CaptureFixture[str], sender: str, target: str, message: str
) -> None:
    assert message in refused(capsys, "--from", sender, "--to", target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "neither YAML nor JSON"),
        ("a: [", "neither YAML nor JSON"),
        ("hello", "it has no kind"),
        ("", "there is no Service in it; `kubectl get services"),
        ("kind: Service\nmetadata: {name: web}", "there is no Node in it; `kubectl get services"),
    ],
)
def test_a_file_that_is_no_dump_reports_how_to_make_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    file = written(tmp_path / "dump", text)
    assert message in refused(capsys, "--from", "client", "--to", "svc/web", file=file)


def test_a_service_without_a_cluster_ip_cannot_be_queried_at_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    headless = {
        "kind": "Service",
        "metadata": {"name": "db", "namespace": "x"},
        "spec": {"clusterIP": "None"},
    }
    file = written(tmp_path / "dump", json.dumps([*example(), headless]))
    assert "Service x/db has no cluster IP (headless" in refused(
        capsys, "--from", "client", "--to", "svc/db:5432", file=file
    )


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "No such file" in refused(capsys, "--from", "client", "--to", "svc/web", file=tmp_path / "no")
