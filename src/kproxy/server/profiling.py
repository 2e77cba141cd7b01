"""What ``enableProfiling`` adds to the metrics port: where each thread is, and the verbosity of the log, to be changed.

Used by `kproxy.server.metrics_endpoints`.  Profiling is Python's: the stacks of all threads under the name that Go's
tools give theirs.  There is no ``profile``, ``heap``, ``trace`` or ``symbol``, and nothing in pprof's own format.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping
from http import HTTPStatus

from kproxy.server import logs
from kproxy.server.ports_http import Answer, Handler, Request, text

_HIGHEST = 2**31 - 1


def thread_stacks(_: Request) -> Answer:
    """Where each thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to another thread's stack
    stacks = (
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames.items()
    )
    return text("\n".join(stacks))


def command_line(_: Request) -> Answer:
    """The process's arguments, a zero byte between them, as Go's pprof has it."""
    return text("\0".join(sys.argv))


def index(_: Request) -> Answer:
    """What there is."""
    return text("".join(f"{path}\n" for path in PROFILING))


def verbosity(request: Request) -> Answer:
    """PUT a number: from now on the log is so verbose."""
    if request.method != "PUT":
        return text("unsupported http method\n", HTTPStatus.NOT_ACCEPTABLE)
    given = request.body.decode(errors="replace")
    if not (given.isascii() and given.isdigit()) or int(given) > _HIGHEST:
        return text(f"{given!r} is no verbosity: a whole number is needed\n", HTTPStatus.BAD_REQUEST)
    logs.set_verbosity(int(given))
    return text(f"successfully set klog.logging.verbosity to {given}\n")


PROFILING: Mapping[str, Handler] = {
    "/debug/flags": index,
    "/debug/flags/v": verbosity,
    "/debug/pprof/": index,
    "/debug/pprof/cmdline": command_line,
    "/debug/pprof/goroutine": thread_stacks,
}
