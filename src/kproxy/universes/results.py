"""Results of universes as files: a JSON line for each, and what was read where one was stopped.

Lines of several runs are merged by putting them together, in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kproxy.universes.judge import Verdict, Violation
from kproxy.universes.launch import UniverseRun
from kproxy.universes.recording import SECOND, Recording
from kproxy.universes.story import describe_sent


class UniverseResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one universe; ``length``: seconds to which it was limited, if it was; ``seconds``: that passed in it; ``error``: why it ended too soon."""

    subject: str
    mode: str
    seed: int
    length: float | None = None
    result: str
    digest: str = ""
    seconds: float = 0.0
    packets: int = 0
    unjudged: dict[str, int] = {}
    known: dict[str, int] = {}
    violations: tuple[dict[str, object], ...] = ()
    error: str = ""


def universe_result(
    subject: str, mode: str, length: float | None, run: UniverseRun, verdict: Verdict
) -> UniverseResult:
    """Result of a universe that has ended."""
    return UniverseResult(
        subject=subject,
        mode=mode,
        seed=run.schedule.seed,
        length=length,
        result=verdict.result,
        digest=run.digest,
        seconds=round(run.schedule.end, 3),
        packets=verdict.judged,
        unjudged=verdict.unjudged,
        known=verdict.known,
        violations=tuple(map(_violation, verdict.violations)),
        error=verdict.failure,
    )


def _violation(violation: Violation) -> dict[str, object]:
    return {
        "at": violation.at,
        "packet": describe_sent(violation),
        "lawful": violation.lawful,
        "seen": violation.seen,
        "clauses": violation.clauses,
    }


def append_result(path: Path, result: UniverseResult) -> None:
    """Add a line to a file."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def state_files(recording: Recording, nodes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Names and texts of files with what was read where a universe was stopped, and the proxies' logs."""
    for state in recording.states():
        program, *arguments = state.command.split()
        name = re.sub(r"[^\w.-]+", "-", " ".join([Path(program).name, *arguments]))
        yield f"{state.namespace}-{name}.txt", f"# {state.at / SECOND:.6f} s: {state.command}\n{state.text}"
    yield from ((f"{node}-proxy.log", recording.log(node)) for node in nodes)
