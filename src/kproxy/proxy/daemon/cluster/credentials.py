"""``Authorization`` header of a request, from credentials that are current.

Used by `kproxy.proxy.daemon.cluster.client`, once per request; reads token files, runs credential plugins.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from kproxy.proxy.daemon.cluster.kubeconfig import (
    ClientCertificate,
    Credentials,
    ExecPlugin,
    KubeconfigError,
    Password,
    Token,
    TokenFile,
)

EXPIRY_MARGIN = 30.0
"""Seconds before a plugin's credential expires at which the plugin is run again."""


class CommandRunner(Protocol):
    """Function that runs a command and returns its output (`kproxy.linux.host.run_tool`)."""

    def __call__(self, argv: Sequence[str], *, environment: Mapping[str, str] | None = ...) -> str:
        """Standard output; raises when the command fails."""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _Status


@dataclass(frozen=True, slots=True)
class _CachedCredential:
    """Credential printed by a plugin, and its expiry in seconds since the epoch."""

    token: str = ""
    certificate: ClientCertificate | None = None
    expires: float = 0.0


class Authorizer:
    """Maker of ``Authorization`` headers and holder of a plugin's client certificate; shared by threads."""

    def __init__(
        self, credentials: Credentials, run: CommandRunner, clock: Callable[[], float] = time.time
    ) -> None:
        """``run`` is only used for a credential plugin; ``clock`` gives seconds since the epoch."""
        self._credentials = credentials
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._cached = _CachedCredential()

    def headers(self) -> dict[str, str]:
        """Headers of one request; raises `OSError` or the runner's error when there is no token now."""
        match self._credentials:
            case None:
                return {}
            case Token(value):
                return _bearer(value)
            case TokenFile(path):
                return _bearer(path.read_text().strip())
            case Password(user, password):
                return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
            case ExecPlugin() as plugin:
                token = self._plugin(plugin).token
                return _bearer(token) if token else {}

    def certificate(self) -> ClientCertificate | None:
        """Client certificate printed by a plugin, None without one; raises as `headers`."""
        return (
            self._plugin(self._credentials).certificate if isinstance(self._credentials, ExecPlugin) else None
        )

    def invalidate(self) -> None:
        """Discard the credential, which the server rejected (401); a plugin is run again for the next request."""
        with self._lock:
            self._cached = _CachedCredential()

    def _plugin(self, plugin: ExecPlugin) -> _CachedCredential:
        with self._lock:
            if self._clock() >= self._cached.expires:
                self._cached = self._run_plugin(plugin)
            return self._cached

    def _run_plugin(self, plugin: ExecPlugin) -> _CachedCredential:
        spec: dict[str, object] = {"interactive": False}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {**plugin.environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode()}
        printed = self._run(plugin.argv, environment=variables)
        try:
            status = msgspec.json.decode(printed, type=_ExecCredential).status
        except msgspec.DecodeError as error:
            raise KubeconfigError(f"{plugin.argv[0]} did not print an ExecCredential: {error}") from error
        pair = ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())
        whole = bool(pair.certificate and pair.key)
        if not (status.token or whole):
            raise KubeconfigError(f"{plugin.argv[0]} gave neither a token nor a certificate with its key")
        ends = status.expiration_timestamp
        until = ends.timestamp() - EXPIRY_MARGIN if ends else float("inf")
        return _CachedCredential(status.token, pair if whole else None, until)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
