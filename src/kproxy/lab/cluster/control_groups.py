"""One control group a node in each hierarchy of this machine: made before its kubelet starts, removed with all below.

https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kproxy.lab.namespaces import LabError

ROOT = Path("/sys/fs/cgroup")
_INHERITED = ("cpuset.cpus", "cpuset.mems")
"""Files of a cpuset that version 1 makes empty: a group whose cpuset is empty takes no process."""
_PATIENCE, _POLL = 10.0, 0.05


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Roots of all hierarchies: one of version 2, or those of version 1 (and a version 2 one beside them)."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted({place.resolve() for place in root.iterdir() if (place / "cgroup.procs").exists()})


def make_groups(name: str, root: Path = ROOT) -> None:
    """Make a group of this name in every hierarchy.  Raises `LabError`."""
    for hierarchy in hierarchies(root):
        group = hierarchy / name
        try:
            group.mkdir()
            for file in _INHERITED:
                if (hierarchy / file).exists() and not (group / file).read_text().strip():
                    (group / file).write_text((hierarchy / file).read_text())
        except OSError as error:
            raise LabError(f"cannot make the control group {group}: {error.strerror}") from error


def remove_groups(name: str, root: Path = ROOT) -> None:
    """Remove the groups of this name and all below them, once their processes have ended.

    Raises `LabError` when one still has processes after ten seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    for hierarchy in hierarchies(root):
        group = hierarchy / name
        while group.exists():
            for place in _deepest_first(group):
                with suppress(OSError):
                    place.rmdir()
            if group.exists() and time.monotonic() > deadline:
                raise LabError(f"the control group {group} cannot be removed: it still has processes")
            if group.exists():
                time.sleep(_POLL)


def groups_named(prefix: str, root: Path = ROOT) -> set[str]:
    """Names of groups at the top of any hierarchy that begin so."""
    return {place.name for hierarchy in hierarchies(root) for place in hierarchy.glob(f"{prefix}*")}


def _deepest_first(group: Path) -> Iterator[Path]:
    for place, _, _ in os.walk(group, topdown=False):
        yield Path(place)
