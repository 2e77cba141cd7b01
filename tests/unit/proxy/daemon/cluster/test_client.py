import shutil
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from kproxy.linux import host
from kproxy.proxy.daemon.cluster.client import ApiClient, ApiError
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.kubeconfig import (
    ClientCertificate,
    ClientConfig,
    Credentials,
    ExecPlugin,
    Password,
    Token,
)
from tests.support.certificates import make, require_client_certificate, speak_tls
from tests.support.scripted_apiserver import Answer, json, serving, status


def client(url: str, credentials: Credentials = None, **connection: object) -> ApiClient:
    return ApiClient(
        ClientConfig(server=url, credentials=credentials, **connection),  # type: ignore[arg-type]
        Authorizer(credentials, host.run_tool),
    )


def test_path_parameters_and_token_arrive(certificates: Path) -> None:
    with serving(Answer([b"all", b" of it"]), wrap=partial(speak_tls, certificates)) as script:
        subject = client(script.url + "/prefix/", Token("t"), insecure=True)
        assert subject.get("/api/v1/services", {"labelSelector": "!a/b", "x": ""}) == b"all of it"
    assert script.requested == [("/prefix/api/v1/services", {"labelSelector": "!a/b", "x": ""})]
    (headers,) = script.headers
    assert headers["Authorization"] == "Bearer t"
    assert headers["Accept"] == "application/json"


def test_what_the_kubeconfig_acts_as_is_in_the_headers_of_every_request() -> None:
    headers = (("Impersonate-User", "jos\u00e9"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    with serving(Answer([b"ok"])) as script:
        client(script.url, impersonation=headers).get("/", {})
    (seen,) = script.pairs
    assert [pair for pair in seen if pair[0].startswith("Impersonate")] == [
        ("Impersonate-User", "jos\u00e9".encode().decode("latin-1")),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    ]


def test_credentials_are_not_sent_without_tls() -> None:
    def plugin(argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
        raise AssertionError(argv, environment)

    given = (Token("t"), Password("me", "pw"), ExecPlugin(("get",), {}, "client.authentication.k8s.io/v1"))
    with serving(Answer([b"ok"])) as script:
        for credentials in given:
            ApiClient(ClientConfig(server=script.url), Authorizer(credentials, plugin)).get("/", {})
    assert len(script.headers) == len(given)
    assert not any("Authorization" in headers for headers in script.headers)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("86400", 60.0), ("9" * 40, 60.0), ("²", 0.0), ("soon", 0.0)]
)
def test_a_refusal_carries_code_message_and_patience_up_to_a_minute(header: str, seconds: float) -> None:
    with (
        serving(status(429, "slow down", Retry_After=header)) as script,
        pytest.raises(ApiError, match="slow down") as error,
    ):
        client(script.url).get("/", {})
    assert (error.value.code, error.value.retry_after) == (429, seconds)


def test_a_refusal_need_not_be_json() -> None:
    with serving(Answer([b"<html>bad gateway"], 502)) as script, pytest.raises(ApiError, match="bad gateway"):
        client(script.url).get("/", {})


def test_a_plugin_is_queried_again_when_its_token_is_refused(certificates: Path) -> None:
    tokens = iter(("old", "new"))

    def plugin(argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
        assert argv == ("get-token",)
        assert environment
        return f'{{"status": {{"token": "{next(tokens)}"}}}}'

    credentials = ExecPlugin(("get-token",), {}, "client.authentication.k8s.io/v1")
    with serving(status(401), Answer([b"ok"]), wrap=partial(speak_tls, certificates)) as script:
        subject = ApiClient(ClientConfig(server=script.url, insecure=True), Authorizer(credentials, plugin))
        with pytest.raises(ApiError):
            subject.get("/", {})
        assert subject.get("/", {}) == b"ok"
    assert [headers["Authorization"] for headers in script.headers] == ["Bearer old", "Bearer new"]


def test_a_stream_that_stays_silent_too_long_times_out() -> None:
    release = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"one"
        release.wait(5)

    with serving(Answer(pieces())) as script:
        with client(script.url).stream("/", {}, 5.0) as stream:
            arriving = iter(stream)
            assert next(arriving) == b"one"
            stream.set_read_timeout(0.05)
            with pytest.raises(TimeoutError):
                next(arriving)
        release.set()


def test_a_server_that_announces_to_close_may_stream_and_be_silent_too() -> None:
    """As a kube-apiserver does that is going away."""
    with (
        serving(Answer([b"one", b"two"], headers=(("Connection", "close"),))) as script,
        client(script.url).stream("/", {}, 5.0) as stream,
    ):
        stream.set_read_timeout(1.0)
        assert b"".join(stream) == b"onetwo"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and certificates it signed for a server called ``api.test`` and for a client."""
    folder = tmp_path_factory.mktemp("certificates")
    make(folder, "DNS:api.test", "server", "client")
    return folder


@pytest.fixture
def tls_url(certificates: Path) -> Iterator[str]:
    """A server that only talks TLS, and only to those with a certificate of the CA."""
    with serving(Answer([b"secret"]), wrap=partial(require_client_certificate, certificates)) as script:
        yield script.url


@pytest.fixture
def mine(certificates: Path) -> ClientCertificate:
    return ClientCertificate(
        (certificates / "client.crt").read_bytes(), (certificates / "client.key").read_bytes()
    )


def test_both_sides_prove_who_they_are(tls_url: str, certificates: Path, mine: ClientCertificate) -> None:
    subject = client(
        tls_url, authority=(certificates / "ca.crt").read_bytes(), server_name="api.test", certificate=mine
    )
    assert subject.get("/", {}) == b"secret"


def test_a_server_whose_certificate_has_no_key_identifier_is_believed_by_every_python(tmp_path: Path) -> None:
    """Python 3.13 and newer would refuse it, Go does not; the authority need not be self-signed either."""
    make(
        tmp_path,
        "DNS:api.test",
        "server",
        extensions=("authorityKeyIdentifier=none", "subjectKeyIdentifier=none"),
    )

    with serving(Answer([b"secret"]), wrap=partial(speak_tls, tmp_path)) as script:
        subject = client(
            script.url,
            authority=(tmp_path / "ca.crt").read_bytes(),
            server_name="api.test",
        )
        assert subject.get("/", {}) == b"secret"


def test_a_server_by_another_name_is_not_believed(
    tls_url: str, certificates: Path, mine: ClientCertificate
) -> None:
    subject = client(tls_url, authority=(certificates / "ca.crt").read_bytes(), certificate=mine)
    with pytest.raises(ssl.SSLCertVerificationError):
        subject.get("/", {})


def test_a_server_of_an_unknown_authority_is_not_believed_unless_instructed_to(
    tls_url: str, mine: ClientCertificate
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        client(tls_url, server_name="api.test", certificate=mine).get("/", {})
    assert client(tls_url, insecure=True, certificate=mine).get("/", {}) == b"secret"


def test_without_a_certificate_the_server_does_not_answer(tls_url: str, certificates: Path) -> None:
    subject = client(tls_url, authority=(certificates / "ca.crt").read_bytes(), server_name="api.test")
    with pytest.raises(OSError, match=r"(?i)certificate required|reset|EOF|broken pipe"):
        subject.get("/", {})


def test_renewed_certificates_are_used_once_they_fit_together(
    tls_url: str, certificates: Path, tmp_path: Path
) -> None:
    make(tmp_path, "DNS:api.test", "client")
    files = tuple(tmp_path / name for name in ("ca.crt", "client.crt", "client.key"))

    def read() -> ClientConfig:
        pair = ClientCertificate(
            (tmp_path / "client.crt").read_bytes(), (tmp_path / "client.key").read_bytes()
        )
        authority = (tmp_path / "ca.crt").read_bytes()
        return ClientConfig(
            server=tls_url, server_name="api.test", authority=authority, certificate=pair, files=files
        )

    subject = ApiClient(read(), Authorizer(None, host.run_tool), read)
    for file in files:
        with pytest.raises(OSError, match=r"(?i)verify|unknown ca|reset|EOF|broken pipe"):
            subject.get("/", {})
        shutil.copy(certificates / file.name, file)
    assert subject.get("/", {}) == b"secret"


def test_a_plugins_certificate_beats_the_kubeconfigs(
    tls_url: str, certificates: Path, mine: ClientCertificate
) -> None:
    given = {"clientCertificateData": mine.certificate.decode(), "clientKeyData": mine.key.decode()}

    def plugin(argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
        assert argv == ("get",)
        assert environment
        return json({"status": given}).decode()

    connection = ClientConfig(
        server=tls_url, authority=(certificates / "ca.crt").read_bytes(), server_name="api.test"
    )
    credentials = ExecPlugin(("get",), {}, "client.authentication.k8s.io/v1")
    assert ApiClient(connection, Authorizer(credentials, plugin)).get("/", {}) == b"secret"
