"""The line of a log that names a failure: the first of a panic, else the first error; consequences are not it."""

from __future__ import annotations

import pytest

from kproxy.conformance.testbeds.cause import LONGEST, first_error

RESTORE = (
    'E1122 10:00:01.000000      17 proxier.go:1538] "Failed to execute iptables-restore" err="exit status 2"'
)
PANIC = "panic: runtime error: index out of range [3] with length 3"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()'
STACK = "goroutine 1 [running]:\nmain.main()\n\t/src/main.go:3 +0x1d\nexit status 2"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", ""),
        ("I1122 10:00:00.000000 17 server.go:1] started\nall is well", ""),
        (f"I1122 10:00:00.000000 17 server.go:1] started\n{RESTORE}\n{RESTORE.replace('01', '02')}", RESTORE),
        (f"{RESTORE}\n{PANIC}\n\n{STACK}", PANIC),
        (f"{TRACEBACK}\nKeyError: 'ports'\nsomething after it", "KeyError: 'ports'"),
        ('time="2026-11-22" level=info msg=up\ntime="2026-11-22" level=error msg="no table"', None),
        ("2026-11-22 10:00:00 ERROR kproxy.sync: iptables-restore: exit 2", None),
        ("iptables-restore v1.8.9 (nf_tables): \nError occurred at line: 3", "Error occurred at line: 3"),
        ("fatal error: all goroutines are asleep - deadlock!\n\n" + STACK, None),
        ("0 errors so far", ""),
    ],
)
def test_the_cause_is_the_first_line_of_a_panic_or_else_of_an_error(log: str, cause: str | None) -> None:
    line = next((one for one in log.splitlines() if "rror" in one.lower() or "deadlock" in one), "")
    assert first_error(log) == (line if cause is None else cause)


def test_a_line_without_an_end_is_cut() -> None:
    assert len(first_error("panic: " + "x" * 10_000)) == LONGEST
