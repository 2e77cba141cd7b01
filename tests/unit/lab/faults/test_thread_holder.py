"""Threads that are held: a program goes on with its others, and ends as it would."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from kproxy.lab.faults import syscall_tracer, write_faults

HANDING_OVER = """
import threading, sys
turns = [threading.Event() for _ in range(3)]
def work(number):
    for _ in range(40):
        turns[number].wait(); turns[number].clear(); turns[(number + 1) % 3].set()
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for one in threads: one.start()
sys.stdin.readline()
turns[0].set()
for one in threads: one.join()
print("ended")
"""
"""Three threads that wake each other, 120 times in all."""


def seconds(microseconds: int, seed: int) -> float:
    """Seconds that the program takes while its threads are held."""
    program = subprocess.Popen(
        [sys.executable, "-c", HANDING_OVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    time.sleep(0.3)
    arguments = (0, 0, microseconds, seed, 1, program.pid)
    tracer = subprocess.Popen(write_faults.tracer_command(arguments), stdout=subprocess.PIPE)
    try:
        assert tracer.stdout
        assert tracer.stdout.readline() == syscall_tracer.READY
        began = time.monotonic()
        out, _ = program.communicate(b"\n", timeout=60)
        assert out == b"ended\n"
        return time.monotonic() - began
    finally:
        tracer.kill()
        tracer.communicate()
        program.kill()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_program_whose_threads_are_held_ends_later_and_unharmed(seed: int) -> None:
    assert seconds(50_000, seed) > seconds(0, -1) + 0.2
