"""What enableProfiling adds to the metrics port."""

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from kproxy.proxy.daemon import logs
from kproxy.proxy.daemon.config.configuration import Configuration, Logging
from kproxy.proxy.daemon.http.metrics_endpoints import metrics_port
from kproxy.proxy.daemon.http.protocol import HttpRequest, HttpResponse

PATHS = ["/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/cmdline", "/debug/flags"]


def request(path: str, method: str = "GET", body: bytes = b"", *, enabled: bool = True) -> HttpResponse:
    handler = metrics_port(Configuration(enable_profiling=enabled), CollectorRegistry(), 0.0)
    return handler(HttpRequest(method, path, body=body))


@pytest.mark.parametrize("path", PATHS)
def test_profiling_is_there_only_when_enabled(path: str) -> None:
    assert request(path, enabled=False).status == 404
    assert request(path).status == 200
    assert path in request("/statusz").body.decode()


def test_profiling_shows_where_each_thread_is() -> None:
    text = request("/debug/pprof/goroutine").body.decode()
    assert "thread MainThread" in text
    assert "test_profiling_shows_where_each_thread_is" in text


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    yield root
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_the_logs_verbosity_can_be_changed_while_it_runs(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure_logging(Logging())
    logger = root_logger.getChild("probe")
    logger.debug("hidden")
    answer = request("/debug/flags/v", "PUT", b"4")
    assert (answer.status, answer.body) == (200, b"successfully set klog.logging.verbosity to 4\n")
    logger.debug("shown")
    request("/debug/flags/v", "PUT", b"2")
    logger.debug("hidden again")
    logger.info("always")
    assert [line.rpartition("] ")[2] for line in capsys.readouterr().err.splitlines()] == ["shown", "always"]


@pytest.mark.parametrize("body", [b"", b"x", b"-1", b"4 ", b"1e3", b"4294967296", "٤".encode(), b"\xff"])
def test_what_is_no_verbosity_changes_nothing(root_logger: logging.Logger, body: bytes) -> None:
    logs.configure_logging(Logging())
    assert request("/debug/flags/v", "PUT", body).status == 400
    assert root_logger.level == logging.INFO


def test_the_verbosity_is_not_for_reading() -> None:
    answer = request("/debug/flags/v")
    assert (answer.status, answer.body) == (406, b"unsupported http method\n")
