"""URL of the API server and credentials for it: from a kubeconfig, or from inside a pod.

Read once at start by `kproxy.proxy.daemon.main`; `kproxy.proxy.daemon.cluster.client` turns the result into
connections. Why no client library: docs/adr/0005-kubeconfig-and-http.md.

Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from kproxy.proxy.daemon.cluster.forward_proxy import (
    ForwardProxy,
    ForwardProxyError,
    parse_forward_proxy,
)
from kproxy.proxy.daemon.config.load import InvalidConfiguration, parse_yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_HEADER_CHARACTERS = "!#$&'*+^`|"
"""Characters of a header's name besides those that a URL never escapes."""


class KubeconfigError(Exception):
    """Unusable kubeconfig or service account; ``str()`` names the file and the missing or bad field."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token that does not change."""

    value: str


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Bearer token in a file that another process (the kubelet) renews: read before each request."""

    path: Path


@dataclass(frozen=True, slots=True)
class Password:
    """HTTP basic authentication."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """Command that prints an ExecCredential (client.authentication.k8s.io); ``cluster``: the ``spec.cluster`` that it receives."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str
    cluster: Mapping[str, object] | None = None


Credentials = Token | TokenFile | Password | ExecPlugin | None


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Connection to an API server.

    ``server`` is a URL. ``authority`` is a PEM bundle, None for the system's own; ``insecure`` accepts any
    certificate. ``server_name`` is the name the certificate must have, empty for the URL's. ``files`` are those that
    authority, certificate and key were read from, which may be renewed while the daemon runs. ``proxy`` is that of
    ``proxy-url``, or of the environment where a program looks there. ``impersonation``: headers of every request, for
    what the kubeconfig wants to act as.
    """

    server: str
    authority: bytes | None = None
    insecure: bool = False
    server_name: str = ""
    certificate: ClientCertificate | None = None
    credentials: Credentials = None
    files: tuple[Path, ...] = ()
    proxy: ForwardProxy | None = None
    impersonation: tuple[tuple[str, str], ...] = ()


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    """Base of kubeconfig's parts; unknown fields are ignored."""


P = TypeVar("P", bound=_Part)


class _Cluster(_Part, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(_Part, frozen=True):
    name: str
    value: str


class _Exec(_Part, frozen=True, rename="camel"):
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    api_version: str = "client.authentication.k8s.io/v1"
    provide_cluster_info: bool = False


class _User(_Part, frozen=True):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None
    impersonated: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _Context(_Part, frozen=True):
    cluster: str = ""
    user: str = ""


class _NamedCluster(_Part, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(_Part, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(_Part, frozen=True):
    name: str
    context: _Context


class _Kubeconfig(_Part, frozen=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


def load_kubeconfig(path: Path) -> ClientConfig:
    """Connection of a kubeconfig's current context; relative paths in it start at its folder.

    Raises `KubeconfigError`.
    """
    try:
        document, _ = parse_yaml(path.read_bytes())
        parsed = msgspec.convert(document, _Kubeconfig)
        return _connection(parsed, path.parent)
    except OSError as error:
        named = "" if Path(error.filename) == path else f"{error.filename}: "
        raise KubeconfigError(f"kubeconfig {path}: {named}{error.strerror}") from error
    except (InvalidConfiguration, msgspec.ValidationError, KubeconfigError) as error:
        raise KubeconfigError(f"kubeconfig {path}: {error}") from error


def server_url(text: str) -> str:
    """URL of a server: without a scheme it is http's, as client-go has it. Raises `KubeconfigError` for another text."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or (url is not text and parts.path not in {"", "/"}):
        raise KubeconfigError(f"{text!r} is no URL of a server: need https://HOST:PORT")
    return url


def _connection(parsed: _Kubeconfig, folder: Path) -> ClientConfig:
    context = _named(
        "context", parsed.current_context, {item.name: item.context for item in parsed.contexts or ()}
    )
    cluster = _named("cluster", context.cluster, {item.name: item.cluster for item in parsed.clusters or ()})
    if not cluster.server:
        raise KubeconfigError(f"cluster {context.cluster!r} has no server")
    server = server_url(cluster.server)
    user = {item.name: item.user for item in parsed.users or ()}.get(context.user) or _User()
    return ClientConfig(
        server=server,
        authority=_pem(cluster.certificate_authority_data, cluster.certificate_authority, folder),
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        certificate=_certificate(user, folder),
        credentials=_credentials(user, cluster, folder),
        files=_files(cluster, user, folder),
        proxy=_proxy(cluster.proxy_url),
        impersonation=_impersonation(user),
    )


def _proxy(url: str) -> ForwardProxy | None:
    try:
        return parse_forward_proxy(url) if url else None
    except ForwardProxyError as error:
        raise KubeconfigError(f"proxy-url: {error}") from error


def _named(what: str, name: str, known: Mapping[str, P]) -> P:
    """The part of that name.  Raises `KubeconfigError`, with the names that there are."""
    if name in known:
        return known[name]
    missing = f"no {what} {name!r}" if name else f"no {what} is chosen"
    raise KubeconfigError(f"{missing}; it has {', '.join(map(repr, known)) or 'none'}")


def _pem(data: str, file: str, folder: Path) -> bytes | None:
    """PEM from inline data, which may have line breaks and beats the file, both as in client-go, or from the file."""
    if data:
        try:
            return base64.b64decode(data.replace("\r", "").replace("\n", ""), validate=True)
        except binascii.Error as error:
            raise KubeconfigError(f"certificate or key data is not base64: {error}") from error
    return (folder / file).read_bytes() if file else None


def _certificate(user: _User, folder: Path) -> ClientCertificate | None:
    certificate = _pem(user.client_certificate_data, user.client_certificate, folder)
    key = _pem(user.client_key_data, user.client_key, folder)
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise KubeconfigError("a client certificate and a client key belong together")
    return ClientCertificate(certificate, key)


def _files(cluster: _Cluster, user: _User, folder: Path) -> tuple[Path, ...]:
    given = (
        (cluster.certificate_authority_data, cluster.certificate_authority),
        (user.client_certificate_data, user.client_certificate),
        (user.client_key_data, user.client_key),
    )
    return tuple(folder / file for data, file in given if file and not data)


def _credentials(user: _User, cluster: _Cluster, folder: Path) -> Credentials:
    """The first credential that is given, in client-go's order of preference."""
    if user.exec is not None:
        argv = (_command(user.exec.command, folder), *(user.exec.args or ()))
        environment = {item.name: item.value for item in user.exec.env or ()}
        cluster_info = _exec_cluster_info(cluster, folder) if user.exec.provide_cluster_info else None
        return ExecPlugin(argv, environment, user.exec.api_version, cluster_info)
    if user.token_file:
        return TokenFile(folder / user.token_file)
    if user.token:
        return Token(user.token)
    return Password(user.username, user.password) if user.username else None


def _impersonation(user: _User) -> tuple[tuple[str, str], ...]:
    """Headers of user impersonation.

    https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
    """
    groups, extra = user.as_groups or (), user.as_user_extra or {}
    if not user.impersonated:
        if user.as_uid or groups or extra:
            raise KubeconfigError("as-uid, as-groups and as-user-extra need a user to act as: as")
        return ()
    return (
        ("Impersonate-User", user.impersonated),
        *([("Impersonate-Uid", user.as_uid)] if user.as_uid else ()),
        *(("Impersonate-Group", group) for group in groups),
        *(
            (f"Impersonate-Extra-{quote(key, safe=_HEADER_CHARACTERS)}", value)
            for key, values in extra.items()
            for value in values
        ),
    )


def _exec_cluster_info(cluster: _Cluster, folder: Path) -> Mapping[str, object]:
    """Cluster information for a credential plugin: ExecCredential ``spec.cluster``."""
    authority = _pem(cluster.certificate_authority_data, cluster.certificate_authority, folder)
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else "",
        "proxy-url": cluster.proxy_url,
    }
    return {name: value for name, value in info.items() if value}


def _command(command: str, folder: Path) -> str:
    """Path of a plugin: a relative path is relative to the kubeconfig; a bare name is found through PATH."""
    return str(folder / command) if "/" in command else command


def load_in_cluster_config(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """Connection of a pod's own service account (``cfg.in-cluster``).

    Raises `KubeconfigError` outside of a pod.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise KubeconfigError(
            "no API server: give --kubeconfig FILE, clientConnection.kubeconfig in the file of --config, or --master URL;"
            " in a pod KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT would be set"
        )
    try:
        authority_file = folder / "ca.crt"
        authority = authority_file.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"service account: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ClientConfig(
        server=server, authority=authority, credentials=TokenFile(folder / "token"), files=(authority_file,)
    )
