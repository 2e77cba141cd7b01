"""Places of the relay workers' Unix sockets: a folder that root alone may enter, one name for each network namespace, release and worker.

The folder is systemd's ``$RUNTIME_DIRECTORY``, or ``/run/kproxy``.  A name says how many workers there are, since which of them serves a port
depends on it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kproxy import __version__

DEFAULT_DIRECTORY = "/run/kproxy"
LOCK_NAME = "relay.lock"
_NAME = re.compile(r"relay-(?P<namespace>\d+)-(?P<release>.+)-(?P<index>\d+)of(?P<count>\d+)")


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker's socket, by its name: the worker itself may have ended."""

    path: Path
    release: str
    index: int
    count: int


def runtime_directory() -> Path:
    """The folder; it need not exist."""
    return Path(os.environ.get("RUNTIME_DIRECTORY") or DEFAULT_DIRECTORY)


def claim_directory() -> Path:
    """The folder, made where it is missing; OSError where that is not possible."""
    folder = runtime_directory()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def worker_path(index: int, count: int, release: str = __version__) -> Path:
    """Path of a worker's socket, in the network namespace of this thread."""
    return runtime_directory() / f"relay-{_namespace()}-{release}-{index}of{count}"


def place_at(path: str) -> WorkerPlace | None:
    """The worker whose socket that is, in any network namespace; None if it is no worker's."""
    match = _NAME.fullmatch(Path(path).name)
    if match is None:
        return None
    return WorkerPlace(Path(path), match["release"], int(match["index"]), int(match["count"]))


def worker_places() -> tuple[WorkerPlace, ...]:
    """Places of this network namespace's workers, of every release, by index."""
    folder, own = runtime_directory(), _namespace()
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    found = [name for name in names if name.startswith(f"relay-{own}-")]
    places = (place for name in found if (place := place_at(str(folder / name))))
    return tuple(sorted(places, key=lambda place: (place.release, place.index)))


def _namespace() -> int:
    return Path("/proc/thread-self/ns/net").stat().st_ino
