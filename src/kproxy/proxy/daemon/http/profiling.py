"""Paths that ``enableProfiling`` adds to the metrics port: stacks of all threads, and the log's verbosity (PUT).

Used by `kproxy.proxy.daemon.http.metrics_endpoints`. Profiling is Python's: the stacks of all threads under the name
that Go's tools give theirs. There is no ``profile``, ``heap``, ``trace`` or ``symbol``, and nothing in pprof's own
format.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping
from http import HTTPStatus

from kproxy.proxy.daemon import logs
from kproxy.proxy.daemon.http.protocol import Handler, HttpRequest, HttpResponse, text_response

_HIGHEST = 2**31 - 1


def thread_stacks(_: HttpRequest) -> HttpResponse:
    """Stacks of all threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to another thread's stack
    stacks = (
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames.items()
    )
    return text_response("\n".join(stacks))


def cmdline(_: HttpRequest) -> HttpResponse:
    """The process's arguments, separated by zero bytes as in Go's pprof."""
    return text_response("\0".join(sys.argv))


def pprof_index(_: HttpRequest) -> HttpResponse:
    """List of the profiling paths."""
    return text_response("".join(f"{path}\n" for path in PROFILING))


def set_log_verbosity(request: HttpRequest) -> HttpResponse:
    """Set the log's verbosity to the number in the body (PUT)."""
    if request.method != "PUT":
        return text_response("unsupported http method\n", HTTPStatus.NOT_ACCEPTABLE)
    given = request.body.decode(errors="replace")
    if not (given.isascii() and given.isdigit()) or int(given) > _HIGHEST:
        return text_response(f"{given!r} is no verbosity: a whole number is needed\n", HTTPStatus.BAD_REQUEST)
    logs.set_verbosity(int(given))
    return text_response(f"successfully set klog.logging.verbosity to {given}\n")


PROFILING: Mapping[str, Handler] = {
    "/debug/flags": pprof_index,
    "/debug/flags/v": set_log_verbosity,
    "/debug/pprof/": pprof_index,
    "/debug/pprof/cmdline": cmdline,
    "/debug/pprof/goroutine": thread_stacks,
}
