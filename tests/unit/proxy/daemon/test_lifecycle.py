"""What ends the daemon: exceptions of any thread, and signals, none of which is lost."""

import os
import select
import signal
import threading
from collections.abc import Iterator

import pytest

from kproxy.proxy.daemon.lifecycle import ExitQueue, RestartRequired


@pytest.fixture
def ending() -> Iterator[ExitQueue]:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    made = ExitQueue()
    yield made
    signal.set_wakeup_fd(-1)
    made._woken.close()
    made._wake.close()
    signal.signal(signal.SIGUSR1, before)


def test_an_exception_of_another_thread_ends_the_wait(ending: ExitQueue) -> None:
    reason = RestartRequired("a file changed")
    threading.Timer(0.05, ending.put, (reason,)).start()
    assert ending.get() is reason


def test_a_signal_before_the_wait_is_not_lost(ending: ExitQueue) -> None:
    """What the wait waits for is ready already; the handler runs as soon as the call returns."""
    woken = ending._woken
    assert not select.select([woken], [], [], 0)[0]
    os.kill(os.getpid(), signal.SIGUSR1)
    assert select.select([woken], [], [], 0)[0]


def test_a_signal_alone_does_not_end_the_wait(ending: ExitQueue) -> None:
    """A handler that does not raise is none of the daemon's."""
    reason = RestartRequired("a file changed")
    threading.Timer(0.1, ending.put, (reason,)).start()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert ending.get() is reason
