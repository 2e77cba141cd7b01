import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.forward_proxy import ForwardProxy
from kproxy.proxy.daemon.cluster.kubeconfig import (
    ClientCertificate,
    ExecPlugin,
    KubeconfigError,
    Password,
    Token,
    TokenFile,
    load_in_cluster_config,
    load_kubeconfig,
)


def write(folder: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "other", "context": {"cluster": "x", "user": "x"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "preferences": {},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_current_context_names_cluster_and_user(tmp_path: Path) -> None:
    connection = load_kubeconfig(write(tmp_path, user={"token": "secret"}))
    assert connection.server == "https://api:6443"
    assert connection.credentials == Token("secret")
    assert (connection.authority, connection.certificate, connection.insecure) == (None, None, False)


def test_files_are_found_beside_the_kubeconfig_and_inline_data_beats_them(tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_bytes(name.encode())
    by_file = write(
        tmp_path,
        cluster={"certificate-authority": "ca"},
        user={"client-certificate": "crt", "client-key": str(tmp_path / "key"), "tokenFile": "token"},
    )
    connection = load_kubeconfig(by_file)
    assert connection.authority == b"ca"
    assert connection.certificate == ClientCertificate(b"crt", b"key")
    assert connection.credentials == TokenFile(tmp_path / "token")
    inline = write(
        tmp_path,
        cluster={"certificate-authority": "ca", "certificate-authority-data": b64(b"inline")},
        user={"client-certificate-data": b64(b"c"), "client-key-data": b64(b"k")},
    )
    connection = load_kubeconfig(inline)
    assert connection.authority == b"inline"
    assert connection.certificate == ClientCertificate(b"c", b"k")


def test_the_files_that_may_be_renewed_are_known(tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_bytes(name.encode())
    user = {"client-certificate": "crt", "client-key-data": b64(b"k"), "client-key": "key"}
    connection = load_kubeconfig(write(tmp_path, cluster={"certificate-authority": "ca"}, user=user))
    assert connection.files == (tmp_path / "ca", tmp_path / "crt")


def test_trust_can_be_loosened_in_two_ways(tmp_path: Path) -> None:
    connection = load_kubeconfig(
        write(tmp_path, cluster={"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes"})
    )
    assert connection.insecure
    assert connection.server_name == "kubernetes"


def test_a_password_is_read(tmp_path: Path) -> None:
    connection = load_kubeconfig(write(tmp_path, user={"username": "me", "password": "pw"}))
    assert connection.credentials == Password("me", "pw")


def test_a_user_to_act_as_is_read(tmp_path: Path) -> None:
    user = {
        "as": "system:kube-proxy",
        "as-uid": "7",
        "as-groups": ["g1", "g2"],
        "as-user-extra": {"acme.com/project%": ["one", "two"]},
    }
    assert load_kubeconfig(write(tmp_path, user=user)).impersonation == (
        ("Impersonate-User", "system:kube-proxy"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g1"),
        ("Impersonate-Group", "g2"),
        ("Impersonate-Extra-acme.com%2Fproject%25", "one"),
        ("Impersonate-Extra-acme.com%2Fproject%25", "two"),
    )
    assert load_kubeconfig(write(tmp_path, user={"token": "t"})).impersonation == ()
    with pytest.raises(KubeconfigError, match="need a user to act as"):
        load_kubeconfig(write(tmp_path, user={"as-groups": ["g1"]}))


@pytest.mark.parametrize("server", ["127.0.0.1:6443", "localhost:6443", "[::1]:6443", "api", "api/"])
def test_a_server_without_a_scheme_is_reached_without_tls(tmp_path: Path, server: str) -> None:
    """Even with an authority: client-go reads that for https only."""
    cluster = {"server": server, "certificate-authority-data": b64(b"pem")}
    assert load_kubeconfig(write(tmp_path, cluster=cluster)).server == f"http://{server}"


def test_a_plugin_is_read(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./get-token",
        "args": ["--now"],
        "env": [{"name": "A", "value": "b"}],
        "interactiveMode": "Never",
    }
    connection = load_kubeconfig(write(tmp_path, user={"exec": plugin}))
    assert connection.credentials == ExecPlugin(
        (str(tmp_path / "get-token"), "--now"), {"A": "b"}, "client.authentication.k8s.io/v1beta1"
    )


def test_a_plugin_that_wants_to_know_the_cluster_is_informed(tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(b"pem")
    cluster = {"certificate-authority": "ca", "tls-server-name": "api.test"}
    user = {"exec": {"command": "get-token", "provideClusterInfo": True}}
    credentials = load_kubeconfig(write(tmp_path, cluster=cluster, user=user)).credentials
    assert isinstance(credentials, ExecPlugin)
    assert credentials.cluster == {
        "server": "https://api:6443",
        "tls-server-name": "api.test",
        "certificate-authority-data": b64(b"pem"),
    }


def test_inline_data_may_have_line_breaks_as_with_client_go(tmp_path: Path) -> None:
    wrapped = base64.encodebytes(b"pem" * 40).decode()
    cluster = {"server": "https://api", "certificate-authority-data": wrapped}
    assert "\n" in wrapped.strip()
    assert load_kubeconfig(write(tmp_path, cluster=cluster)).authority == b"pem" * 40


def test_a_proxy_url_is_the_proxy_of_all_requests(tmp_path: Path) -> None:
    cluster = {"server": "https://api", "proxy-url": "http://user:secret@proxy:3128"}
    assert load_kubeconfig(write(tmp_path, cluster=cluster)).proxy == ForwardProxy(
        "http", "proxy", 3128, "user", "secret"
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"current-context": "nowhere"}, "no context 'nowhere'; it has 'other', 'here'"),
        ({"current-context": ""}, "no context is chosen; it has 'other', 'here'"),
        ({"clusters": []}, "no cluster 'c'"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "cluster 'c' has no server"),
        ({"clusters": [{"name": "c", "cluster": {"server": "api:6443/path"}}]}, "no URL of a server"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://s", "proxy-url": "ftp://p"}}]},
            "proxy-url: 'ftp://p' is no proxy that kproxy can use: need http://HOST:PORT",
        ),
        ({"users": [{"name": "u", "user": {"client-certificate-data": b64(b"c")}}]}, "client key"),
        (
            {
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://s", "certificate-authority-data": "%"}}
                ]
            },
            "base64",
        ),
        (
            {
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://s", "certificate-authority": "none"}}
                ]
            },
            "none",
        ),
        ({"clusters": "none"}, "clusters"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    path = write(tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    with pytest.raises(KubeconfigError, match=complaint):
        load_kubeconfig(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="absent"):
        load_kubeconfig(tmp_path / "absent")


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"ca")
    variables = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    connection = load_in_cluster_config(variables, tmp_path)
    assert (connection.server, connection.authority) == ("https://10.96.0.1:443", b"ca")
    assert connection.credentials == TokenFile(tmp_path / "token")
    six = load_in_cluster_config(variables | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)
    assert six.server == "https://[fd00::1]:443"


def test_outside_of_a_pod_a_kubeconfig_is_needed(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="kubeconfig"):
        load_in_cluster_config({}, tmp_path)


class Plugin:
    """A credential plugin: remembers how it was called, prints the answer of the test."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.environments: list[Mapping[str, str] | None] = []

    def __call__(self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
        assert argv == ("get-token",)
        self.environments.append(environment)
        return self.answer


EXEC = ExecPlugin(("get-token",), {"A": "b"}, "client.authentication.k8s.io/v1")


def credential(token: str, ends: str | None = None) -> str:
    return json.dumps({"kind": "ExecCredential", "status": {"token": token, "expirationTimestamp": ends}})


def test_headers_follow_the_kind_of_credentials() -> None:
    plugin = Plugin("")
    assert Authorizer(None, plugin).headers() == {}
    assert Authorizer(Token("t"), plugin).headers() == {"Authorization": "Bearer t"}
    assert Authorizer(Password("u", "p"), plugin).headers() == {"Authorization": "Basic dTpw"}


def test_a_token_file_is_read_each_time_since_it_is_renewed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    authorizer = Authorizer(TokenFile(path), Plugin(""))
    for token in ("one", "two"):
        path.write_text(token + "\n")
        assert authorizer.headers() == {"Authorization": f"Bearer {token}"}


def test_a_plugin_is_given_what_is_requested_and_its_token_is_kept_until_shortly_before_it_ends() -> None:
    plugin, now = Plugin(credential("t", "1970-01-01T00:10:00Z")), [0.0]
    authorizer = Authorizer(EXEC, plugin, lambda: now[0])
    for seconds, calls in ((0.0, 1), (500.0, 1), (569.0, 1), (571.0, 2)):
        now[0] = seconds
        assert authorizer.headers() == {"Authorization": "Bearer t"}
        assert len(plugin.environments) == calls
    environment = plugin.environments[0] or {}
    assert environment["A"] == "b"
    requested = json.loads(environment["KUBERNETES_EXEC_INFO"])
    assert requested["apiVersion"] == "client.authentication.k8s.io/v1"
    assert requested["kind"] == "ExecCredential"


def test_a_plugins_token_without_an_end_is_kept_until_the_server_refuses_it() -> None:
    plugin = Plugin(credential("t"))
    authorizer = Authorizer(EXEC, plugin)
    authorizer.headers()
    authorizer.headers()
    assert len(plugin.environments) == 1
    authorizer.invalidate()
    authorizer.headers()
    assert len(plugin.environments) == 2


def test_a_plugin_may_give_a_certificate_instead_of_a_token() -> None:
    status = {"clientCertificateData": "pem", "clientKeyData": "key"}
    authorizer = Authorizer(EXEC, Plugin(json.dumps({"status": status})))
    assert authorizer.certificate() == ClientCertificate(b"pem", b"key")
    assert authorizer.headers() == {}


def test_only_plugins_have_a_certificate_of_their_own() -> None:
    for credentials in (None, Token("t"), EXEC):
        assert Authorizer(credentials, Plugin(credential("t"))).certificate() is None


def test_a_plugin_is_informed_of_the_cluster_if_it_wants_to_be() -> None:
    plugin = Plugin(credential("t"))
    cluster = {"server": "https://api:6443", "tls-server-name": "api.test"}
    Authorizer(replace(EXEC, cluster=cluster), plugin).headers()
    requested = json.loads((plugin.environments[0] or {})["KUBERNETES_EXEC_INFO"])
    assert requested["spec"] == {"interactive": False, "cluster": cluster}


@pytest.mark.parametrize(
    "answer", ["", "no json", credential(""), "{}", '{"status": {"clientCertificateData": "without a key"}}']
)
def test_a_plugin_without_a_token_is_an_error(answer: str) -> None:
    with pytest.raises(KubeconfigError, match="get-token"):
        Authorizer(EXEC, Plugin(answer)).headers()
