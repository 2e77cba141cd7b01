"""The ``Authorization`` header of a request, fresh enough to be believed.

Used by `kproxy.server.client`, once per request; reads token files, runs credential plugins.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from kproxy.server.kubeconfig import Credentials, ExecPlugin, KubeconfigError, Password, Token, TokenFile

EXPIRY_MARGIN = 30.0
"""Seconds before its end at which a plugin's token is asked for anew."""


class Runner(Protocol):
    """Runs a command and gives what it printed (`kproxy.host.run`)."""

    def __call__(self, argv: Sequence[str], *, environment: Mapping[str, str] | None = ...) -> str:
        """What it printed; raises when the command fails."""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _Status


class Authorizer:
    """Makes ``Authorization`` headers; shared by threads."""

    def __init__(self, credentials: Credentials, run: Runner, clock: Callable[[], float] = time.time) -> None:
        """``run`` is only used for a credential plugin; ``clock`` gives seconds since the epoch."""
        self._credentials = credentials
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def headers(self) -> dict[str, str]:
        """The headers of one request; raises `OSError` or the runner's error when there is no token now."""
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
                return _bearer(self._plugin_token(plugin))

    def refused(self) -> None:
        """The server did not accept it (401): a plugin is asked again next time."""
        with self._lock:
            self._until = 0.0

    def _plugin_token(self, plugin: ExecPlugin) -> str:
        with self._lock:
            if self._clock() >= self._until:
                self._token, self._until = self._ask(plugin)
            return self._token

    def _ask(self, plugin: ExecPlugin) -> tuple[str, float]:
        request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        variables = {**plugin.environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode()}
        printed = self._run(plugin.argv, environment=variables)
        try:
            status = msgspec.json.decode(printed, type=_ExecCredential).status
        except msgspec.DecodeError as error:
            raise KubeconfigError(f"{plugin.argv[0]} did not print an ExecCredential: {error}") from error
        if not status.token:
            raise KubeconfigError(
                f"{plugin.argv[0]} gave no token; client certificates of plugins are not supported"
            )
        ends = status.expiration_timestamp
        return status.token, ends.timestamp() - EXPIRY_MARGIN if ends else float("inf")


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
