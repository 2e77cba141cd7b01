"""Relay workers of this node: found, started, drained, ended.

Called by `kproxy.proxy.relay.workers`, and where rules are removed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address

from kproxy import __version__
from kproxy.linux import conntrack, host
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family, Protocol
from kproxy.proxy.relay.connection import WorkerConnection
from kproxy.proxy.relay.places import LOCK_NAME, WorkerPlace, claim_directory, worker_places
from kproxy.proxy.relay.table import RelayKey

log = logging.getLogger(__name__)

_MOST_BY_PROCESSORS = 8

RELEASE = __version__
"""Workers of another one hand over to those of this one."""

_END_SECONDS = 10.0

HANDSHAKE_SECONDS = 0.5
"""Seconds that ports stay open after the last rule that leads to them."""

START_SECONDS = 20.0
"""Seconds within which a worker must have started."""

_AGAIN_SECONDS = 2.0
"""Seconds that a worker's parent has to start it again; after that the parent is taken to have ended too."""


def drain_workers(family: Family) -> bool:
    """Close a family's ports in all workers here: no rule leads to them any more.  True while they have connections, or do not answer.

    The ports stay for `HANDSHAKE_SECONDS`, for clients that rules have led to them already.  They stay open, and the result is True,
    where the UDP flows to them cannot be ended.
    """
    places = worker_places()
    workers = _connected(places, family)
    reached = {worker.place for worker in workers}
    silent = any(_is_alive(place) for place in places if place not in reached)
    there = {key: number for worker in workers for key, number in worker.open.items()}
    if there:
        time.sleep(HANDSHAKE_SECONDS)
    try:
        end_flows_to(family, there)
    except HostError as error:
        log.warning("%s: UDP flows to the relay stay: %s", family.value, error)
        for worker in workers:
            worker.close()
        return True
    return True in [silent, *map(_drain, workers)]


def end_flows_to(family: Family, ports: Mapping[RelayKey, int]) -> None:
    """Remove the UDP flows to ports that no rule leads to any more, and that nobody will know (``restart.stale-udp-entries.reconciled``).

    Raises `HostError`.
    """
    sockets = {
        (ip_address(address), number)
        for ((_, protocol, _), address, _, _), number in ports.items()
        if protocol is Protocol.UDP
    }
    if sockets:
        flows = conntrack.list_udp_flows(family, lambda _: True)
        conntrack.delete_flows([flow for flow in flows if flow.reply_source in sockets])


def _drain(worker: WorkerConnection) -> bool:
    """Close a worker's ports; True while it has connections, or may have: it does not answer in time."""
    try:
        worker.shut(list(worker.open))
        return worker.count().open_connections > 0
    except ConnectionError:
        return False
    except OSError:
        return True
    finally:
        worker.close()


def reset_kept_sources(family: Family) -> None:
    """Reset connections whose endpoints see the client's address: the rules that brought their answers back are gone."""
    for worker in _connected(worker_places(), family):
        with suppress(OSError):
            worker.shut([], reset_kept_sources=True)
        worker.close()


def end_workers() -> None:
    """End all workers here, their connections and the flows to them; remove their sockets (``cleanup.nothing-left``)."""
    for family in Family:
        drain_workers(family)
    places = worker_places()
    for worker in _connected(places, Family.IPV4):
        with suppress(OSError):
            worker.end()
        worker.close()
    deadline = time.monotonic() + _END_SECONDS
    while any(place.path.exists() and _is_alive(place) for place in places) and time.monotonic() < deadline:
        time.sleep(0.02)
    for place in places:
        place.path.unlink(missing_ok=True)
    for folder in {place.path.parent for place in places}:
        with suppress(OSError):  # other network namespaces have workers too
            (folder / LOCK_NAME).unlink(missing_ok=True)
            folder.rmdir()


def running_workers(count: int) -> tuple[WorkerPlace, ...]:
    """Places of this release's workers, started if they do not run.

    ``count`` 0: as many as run, else as many as those of an earlier release, else one for each processor, at most 8.
    """
    try:
        folder = claim_directory()
        with (folder / LOCK_NAME).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            alive = [place for place in worker_places() if _is_alive(place)]
            own = [place.count for place in alive if place.release == RELEASE]
            processors = min(_MOST_BY_PROCESSORS, len(os.sched_getaffinity(0)))
            number = count or [*own, *(place.count for place in alive), processors][0]
            if number in own:
                with suppress(HostError):
                    return _await_workers(number, _AGAIN_SECONDS)
            host.start_detached([sys.executable, "-m", "kproxy.proxy.relay", str(number), RELEASE])
            return _await_workers(number, START_SECONDS)
    except OSError as error:
        text = f"{error.strerror or error}: its workers' sockets are there; set RUNTIME_DIRECTORY to a folder that can be written"
        raise HostError(f"start the relay at {error.filename}", text, Reason.OTHER) from error


def _await_workers(count: int, seconds: float) -> tuple[WorkerPlace, ...]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        own = [place for place in worker_places() if place.release == RELEASE and place.count == count]
        if len(own) == count and all(map(_is_alive, own)):
            return tuple(own)
        time.sleep(0.02)
    raise HostError("start the relay's workers", f"{count} do not run after {seconds:g} s", Reason.OTHER)


def _is_alive(place: WorkerPlace) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(place.path)) == 0


def earlier_workers(family: Family, current: Collection[WorkerPlace]) -> list[WorkerConnection]:
    """Connections to the workers of other releases and numbers than the ``current`` ones."""
    return _connected((place for place in worker_places() if place not in current), family)


def _connected(places: Iterable[WorkerPlace], family: Family) -> list[WorkerConnection]:
    found = []
    for place in places:
        with suppress(OSError):
            found.append(WorkerConnection(place, family))
    return found
