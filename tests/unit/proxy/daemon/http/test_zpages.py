"""/statusz and /flagz: what they report, and in which form to which client.

Forms and refusals are those that kube-proxy 1.36 was seen to answer with; KEP-4827, KEP-4828.
"""

import json
import time
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry

from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.flag_table import FLAGS, REMOVED_FLAGS
from kproxy.proxy.daemon.config.flags import parse_flags
from kproxy.proxy.daemon.http.metrics_endpoints import metrics_port
from kproxy.proxy.daemon.http.protocol import HttpRequest, HttpResponse

STARTED = 1_700_000_000.0  # 2023-11-14T22:13:20Z, a Tuesday
ARGUMENTS = (
    "--v=2",
    "--nodeport-addresses=10.0.0.0/8,fd00::/8",
    "--feature-gates=B=true,A=false",
    "--profiling",
)


def get(path: str, accept: str | None = None, *, gates: dict[str, bool] | None = None) -> HttpResponse:
    config = Configuration(feature_gates=gates or {})
    given = parse_flags([word for word in ARGUMENTS if "gates" not in word], FLAGS, REMOVED_FLAGS)
    handler = metrics_port(config, CollectorRegistry(), STARTED, given)
    return handler(HttpRequest("GET", path, headers={} if accept is None else {"accept": accept}))


def by_name(kind: str, version: str) -> str:
    return f"application/json;v={version};g=config.k8s.io;as={kind}"


def test_the_status_page_reports_who_this_is_since_when_and_what_else_there_is() -> None:
    text = get("/statusz").body.decode()
    assert text.startswith("\nkube-proxy statusz\nWarning: ")
    assert "\nStarted: Tue Nov 14 22:13:20 UTC 2023\n" in text
    assert "\nBinary version: kproxy " in text
    assert "\nPaths: /configz /flagz /healthz /metrics /metrics/slis /proxyMode /statusz\n" in text


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_the_status_page_is_json_for_requests_that_name_it(version: str) -> None:
    reported = json.loads(get("/statusz", by_name("Statusz", version)).body)
    assert reported["kind"] == "Statusz"
    assert reported["apiVersion"] == f"config.k8s.io/{version}"
    assert reported["metadata"] == {"name": "kube-proxy"}
    assert reported["startTime"] == "2023-11-14T22:13:20Z"
    assert reported["uptimeSeconds"] == pytest.approx(time.time() - STARTED, abs=5)
    assert "/metrics" in reported["paths"]


def test_the_flags_page_has_every_flag_with_what_was_given_or_is_the_default() -> None:
    head, _, table = get("/flagz").body.decode().partition("\n\n")
    assert head.startswith("\nkube-proxy flagz\nWarning: ")
    lines = table.splitlines()
    names = [line.partition(": ")[0] for line in lines]
    assert names == sorted(flag.name for flag in FLAGS)
    for line in (
        "v: 2",
        "nodeport-addresses: [10.0.0.0/8,fd00::/8]",
        "profiling: true",
        "cleanup: false",
        "conntrack-max-per-core: 32768",
        "conntrack-tcp-timeout-established: 24h0m0s",
        "config-sync-period: 15m0s",
        "healthz-bind-address: 0.0.0.0:10256",
        "healthz-port: 10256",
        "iptables-min-sync-period: 1s",
        "ipvs-exclude-cidrs: []",
        "ipvs-min-sync-period: 1s",
        "ipvs-udp-timeout: 0s",
        "iptables-localhost-nodeports: true",
        "kube-api-qps: 5",
        "kubeconfig: ",
        "logging-format: text",
        "log-json-info-buffer-size: 0",
        "oom-score-adj: -999",
        "vmodule: ",
    ):
        assert line in lines


def test_the_flags_page_is_json_for_requests_that_name_it() -> None:
    answer = get("/flagz", by_name("Flagz", "v1beta1"))
    reported = json.loads(answer.body)
    assert answer.content_type == "application/json;g=config.k8s.io;v=v1beta1;as=Flagz"
    assert (reported["kind"], reported["apiVersion"]) == ("Flagz", "config.k8s.io/v1beta1")
    assert reported["flags"]["v"] == "2"
    assert set(reported["flags"]) == {flag.name for flag in FLAGS}


@pytest.mark.parametrize(("path", "kind"), [("/statusz", "Statusz"), ("/flagz", "Flagz")])
def test_a_page_comes_in_the_form_that_was_requested_or_not_at_all(path: str, kind: str) -> None:
    for plain in (None, "*/*", "text/plain", "text/html, text/*;q=0.8"):
        assert get(path, plain).content_type == "text/plain; charset=utf-8"
    assert "Warning" in get(path, by_name(kind, "v1alpha1")).headers
    assert "Warning" not in get(path, by_name(kind, "v1beta1")).headers
    for unknown in ("text/html", "application/json", by_name(kind, "v9"), by_name("Other", "v1beta1")):
        answer = get(path, unknown)
        assert answer.status == HTTPStatus.NOT_ACCEPTABLE
        assert json.loads(answer.body)["reason"] == "NotAcceptable"


@pytest.mark.parametrize(("path", "gate"), [("/statusz", "ComponentStatusz"), ("/flagz", "ComponentFlagz")])
def test_a_page_is_there_unless_its_gate_is_closed(path: str, gate: str) -> None:
    assert get(path).status == HTTPStatus.OK
    assert get(path, gates={gate: False}).status == HTTPStatus.NOT_FOUND
