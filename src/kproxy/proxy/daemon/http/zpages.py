"""``/statusz`` and ``/flagz``: version, uptime and flags as plain text, or as JSON for clients that name its media type.

Part of the metrics port (`kproxy.proxy.daemon.http.metrics_endpoints`). Formats: KEP-4827 and KEP-4828, as kube-proxy
1.36 has them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from kproxy import __version__
from kproxy.proxy.daemon.http.protocol import Handler, HttpRequest, HttpResponse, text_response

EMULATED_RELEASE = "1.36"
"""Release of Kubernetes whose kube-proxy this emulates."""

_GROUP = "config.k8s.io"
_VERSIONS = ("v1beta1", "v1alpha1")
_DEPRECATED = {"Warning": '299 - "This version of the endpoint is deprecated. Please use a newer version."'}
_PLAIN = frozenset({"", "*/*", "text/*", "text/plain"})
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, "
    "has no formatting compatibility guarantees and is for debugging purposes only."
)

Lines = Mapping[str, str]
Members = Mapping[str, object]


def statusz(started: float, paths: tuple[str, ...]) -> Handler:
    """``/statusz``: start (``started``, seconds since the epoch), uptime, versions, and the other paths."""
    listed = sorted(paths)
    begun = datetime.fromtimestamp(started, UTC)

    def plain() -> Lines:
        minutes, rest = divmod(int(time.time() - started), 60)
        return {
            "Started": f"{begun:%a %b %d %H:%M:%S UTC %Y}",
            "Up": f"{minutes // 60} hr {minutes % 60:02} min {rest:02} sec",
            "Python version": platform.python_version(),
            "Binary version": f"kproxy {__version__}",
            "Emulation version": EMULATED_RELEASE,
            "Paths": " ".join(listed),
        }

    def structured() -> Members:
        return {
            "startTime": begun.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "uptimeSeconds": int(time.time() - started),
            "binaryVersion": __version__,
            "emulationVersion": EMULATED_RELEASE,
            "paths": listed,
        }

    return _page("Statusz", plain, structured)


def flagz(flags: Callable[[], Lines]) -> Handler:
    """``/flagz``: all flags and their values."""
    return _page("Flagz", flags, lambda: {"flags": dict(flags())})


def _page(kind: str, plain: Callable[[], Lines], structured: Callable[[], Members]) -> Handler:
    def handle(request: HttpRequest) -> HttpResponse:
        version = _accepted_version(request.headers.get("accept", ""), kind)
        if version is None:
            return _not_acceptable()
        if not version:
            head = f"\nkube-proxy {kind.lower()}\n{_WARNING}\n\n"
            return text_response(head + "".join(f"{name}: {value}\n" for name, value in plain().items()))
        body = {
            "kind": kind,
            "apiVersion": f"{_GROUP}/{version}",
            "metadata": {"name": "kube-proxy"},
            **structured(),
        }
        return HttpResponse(
            HTTPStatus.OK,
            msgspec.json.encode(body),
            f"application/json;g={_GROUP};v={version};as={kind}",
            {} if version == _VERSIONS[0] else _DEPRECATED,
        )

    return handle


def _accepted_version(accept: str, kind: str) -> str | None:
    """Version of the JSON that an ``Accept`` header requests, empty for plain text, None for neither."""
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        if media in _PLAIN:
            return ""
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media == "application/json" and (named.get("g"), named.get("as")) == (_GROUP, kind):
            version = named.get("v", "")
            if version in _VERSIONS:
                return version
    return None


def _not_acceptable() -> HttpResponse:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "only the following media types are accepted: application/json, text/plain",
        "reason": "NotAcceptable",
        "code": HTTPStatus.NOT_ACCEPTABLE.value,
    }
    return HttpResponse(HTTPStatus.NOT_ACCEPTABLE, msgspec.json.encode(status))
