"""Requests through proxies of other projects, to servers that speak HTTP, and TLS with certificates of both sides."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kproxy.linux import host
from kproxy.proxy.daemon.cluster.client import ApiClient
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.forward_proxy import parse_forward_proxy
from kproxy.proxy.daemon.cluster.kubeconfig import ClientCertificate, ClientConfig
from tests.support.certificates import make, require_client_certificate
from tests.support.forward_proxies import http_proxy
from tests.support.scripted_apiserver import Answer, Script, serving

CLOSING = Answer([b"one", b"two"], headers=(("Connection", "close"),))
LARGE = b"x" * 300_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make(folder, "IP:127.0.0.1", "server", "client", "proxy")
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A proxy for anybody."""
    with http_proxy(tmp_path_factory.mktemp("plain")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[str]:
    """A proxy that speaks TLS, and that wants a user and a password."""
    files = ("--cert-file", str(certificates / "proxy.crt"), "--key-file", str(certificates / "proxy.key"))
    with http_proxy(tmp_path_factory.mktemp("guarded"), "--basic-auth", "user:secret", *files) as port:
        yield f"https://user:secret@127.0.0.1:{port}"


@pytest.fixture
def trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's authorities, by which a proxy is verified, are the tests' own."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.crt"))


@pytest.fixture
def api(certificates: Path) -> Iterator[Script]:
    """A server that speaks TLS, and answers holders of a certificate only."""
    with serving(CLOSING, wrap=partial(require_client_certificate, certificates)) as script:
        yield script


@pytest.fixture
def config(api: Script, certificates: Path) -> ClientConfig:
    pair = ((certificates / f"client.{kind}").read_bytes() for kind in ("crt", "key"))
    authority = (certificates / "ca.crt").read_bytes()
    return ClientConfig(server=api.url, authority=authority, certificate=ClientCertificate(*pair))


def client(config: ClientConfig, proxy: str) -> ApiClient:
    return ApiClient(replace(config, proxy=parse_forward_proxy(proxy)), Authorizer(None, host.run_tool))


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("proxy", ["plain", "guarded"])
def test_tls_goes_through_a_tunnel_to_the_server(
    proxy: str, config: ClientConfig, api: Script, request: pytest.FixtureRequest
) -> None:
    subject = client(config, request.getfixturevalue(proxy))
    with subject.stream("/watch", {"a": "b"}, 5.0) as stream:
        stream.set_read_timeout(2.0)
        assert b"".join(stream) == b"onetwo"
    api.answers[:] = [Answer([LARGE])]
    assert subject.get("/list", {}) == LARGE
    assert api.requested == [("/watch", {"a": "b"}), ("/list", {})]
    assert all("Proxy-Authorization" not in headers for headers in api.headers)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("proxy", ["plain", "guarded"])
def test_a_server_without_tls_is_reached_by_its_whole_url(proxy: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(proxy)
    with serving(Answer([b"ok"])) as script:
        assert client(ClientConfig(server=f"{script.url}/prefix"), url).get("/api", {"a": "b"}) == b"ok"
    assert script.requested == [("/prefix/api", {"a": "b"})]
    (headers,) = script.headers
    assert "via" in {name.lower() for name in headers}, "the request did not pass through the proxy"


@pytest.mark.usefixtures("trusted")
def test_a_tunnel_that_is_refused_names_proxy_status_and_server(guarded: str, config: ClientConfig) -> None:
    stranger = guarded.replace("user:secret@", "")
    with pytest.raises(OSError, match=r"^proxy https://127\.0\.0\.1:\d+: CONNECT 127\.0\.0\.1:\d+: 407 "):
        client(config, stranger).get("/", {})


def test_a_proxy_of_an_unknown_authority_is_given_no_password(guarded: str, config: ClientConfig) -> None:
    with pytest.raises(OSError, match=r"^proxy https://127\.0\.0\.1:\d+: .*certificate verify failed"):
        client(config, guarded).get("/", {})


def test_a_server_of_an_unknown_authority_is_not_believed_through_a_proxy(
    plain: str, config: ClientConfig
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        client(replace(config, authority=None), plain).get("/", {})


def test_a_proxy_that_does_not_answer_is_named(config: ClientConfig) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"^proxy {url}: Connection refused"):
            client(config, url).get("/", {})


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("proxy", ["plain", "guarded"])
def test_a_silent_server_times_out_through_a_proxy(
    proxy: str, config: ClientConfig, api: Script, request: pytest.FixtureRequest
) -> None:
    release = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"one"
        release.wait(5)

    api.answers[:] = [Answer(pieces())]
    with client(config, request.getfixturevalue(proxy)).stream("/", {}, 5.0) as stream:
        arriving = iter(stream)
        assert next(arriving) == b"one"
        stream.set_read_timeout(0.1)
        with pytest.raises(TimeoutError):
            next(arriving)
        release.set()
