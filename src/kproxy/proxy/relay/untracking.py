"""Connection tracking's entries that lead clients to a socket of the relay, deleted so that rules decide about their next datagrams.

By a thread of its own, since the relay's serves all clients and the kernel may take its time.  What the kernel refuses is tried again: to
delete an entry that came since costs its client nothing, as rules then lead it where they did.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kproxy.linux.conntrack import delete_flows_answered_by
from kproxy.linux.host import HostError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kproxy.linux.conntrack import Socket

AGAIN_SECONDS = 1.0
"""Seconds until what was refused is tried again."""

MOST_PENDING = 1 << 12
"""Entries that are waited for; of more, none is remembered."""

log = logging.getLogger(__name__)


class Untracker:
    """Entries to be deleted, by the socket that clients are led to.  Any thread may call it; it raises nothing."""

    def __init__(self) -> None:
        self._pending: dict[Socket, set[Socket]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._refused = False

    def untrack(self, answering: Socket, clients: Iterable[Socket]) -> None:
        """Have the entries deleted that lead these clients to a socket of this node."""
        with self._changed:
            waiting = sum(map(len, self._pending.values()))
            new = set(clients)
            if not new or waiting + len(new) > MOST_PENDING:
                return
            self._pending.setdefault(answering, set()).update(new)
            if self._thread is None:  # in the network namespace of the thread that calls first
                self._thread = threading.Thread(target=self._run, name="untracker", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread; what it has not deleted stays."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._pending)
                if self._closed:
                    return
                taken, self._pending = self._pending, {}
            refused = {
                answering for answering, clients in taken.items() if not self._delete(answering, clients)
            }
            self._refused = bool(refused)
            if refused:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, AGAIN_SECONDS)
                for answering in refused:
                    self.untrack(answering, taken[answering])

    def _delete(self, answering: Socket, clients: Iterable[Socket]) -> bool:
        try:
            delete_flows_answered_by(answering, clients)
        except HostError as error:
            if not self._refused:  # else a line for each attempt
                log.warning("relay: UDP clients of %s:%d are still led here: %s", *answering, error)
            return False
        return True
