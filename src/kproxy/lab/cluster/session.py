"""A running cluster as other commands find it: a lock that its session holds, and a file that says how to enter it.

The lock is an flock(2) on a file in the cluster's folder, which the kernel releases when the session dies: a folder
without a holder is what a killed session has left, and `remove_abandoned` removes it with its control groups.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kproxy.lab.cluster import control_groups
from kproxy.lab.cluster.cluster import HOME, INSIDE_KUBECONFIG, LOCK, PREFIX, LabCluster, child_of, enter_node
from kproxy.lab.namespaces import LabError

_FILE = "session.json"
_END_SECONDS, _POLL = 60.0, 0.1


class ClusterSession(msgspec.Struct, frozen=True):
    """A running cluster as other commands see it. Paths are absolute."""

    name: str
    pid: int
    """Of the session's process."""
    kubectl: str
    kubeconfig: str
    nodes: Mapping[str, int]
    """Of each node, the process whose only child is the node's first."""
    namespaces: Mapping[str, str]
    """Paths of the network namespaces outside of the nodes."""

    def command(self, where: str, argv: Sequence[str]) -> list[str]:
        """Command line that runs another in a place: ``node/NAME``, or a name of `namespaces`.  Raises `LabError`.

        ``KUBECONFIG`` there is the administrator's.
        """
        inside = Path(self.kubeconfig).with_name(INSIDE_KUBECONFIG)
        argv = ["env", f"KUBECONFIG={inside}", *argv]
        kind, _, node = where.partition("/")
        if kind == "node" and node in self.nodes:
            return enter_node(child_of(self.nodes[node]), argv)
        if where in self.namespaces:
            return ["nsenter", f"--net={self.namespaces[where]}", "--", *argv]
        places = [*(f"node/{name}" for name in self.nodes), *self.namespaces]
        raise LabError(f"there is no {where} in this cluster: there are {', '.join(places)}")

    def kubectl_command(self, arguments: Sequence[str]) -> list[str]:
        """Command line of kubectl as administrator."""
        return [self.kubectl, f"--kubeconfig={self.kubeconfig}", *arguments]


def publish(name: str, cluster: LabCluster, namespaces: Sequence[str]) -> None:
    """Write the file by which other commands find a cluster."""
    session = ClusterSession(
        name=name,
        pid=os.getpid(),
        kubectl=str(cluster.spec.programs.kubectl),
        kubeconfig=str(cluster.kubeconfig),
        nodes={node: cluster.outer_pid(node) for node in cluster.nodes},
        namespaces={place: cluster.network[place].path for place in namespaces},
    )
    written = cluster.folder / f"{_FILE}.new"
    written.write_bytes(msgspec.json.encode(session))
    written.rename(cluster.folder / _FILE)


def find_session(name: str) -> ClusterSession:
    """The running cluster of this name.  Raises `LabError` when there is none."""
    for folder in _folders():
        if _is_held(folder) and (session := _read(folder)) and session.name == name:
            return session
    raise LabError(f"no cluster called {name} is running here: `kproxy lab cluster up` starts one")


def stop_session(name: str) -> None:
    """End a cluster, and wait until nothing of it is left.  Raises `LabError`."""
    session = find_session(name)
    folder = Path(session.kubeconfig).parent
    os.kill(session.pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    while folder.exists():
        if time.monotonic() > deadline:
            raise LabError(f"the cluster has not ended within {_END_SECONDS:g} s: process {session.pid}")
        time.sleep(_POLL)


def abandoned_folders() -> list[Path]:
    """Folders of clusters whose session was killed."""
    return [folder for folder in _folders() if not _is_held(folder)]


def remove_abandoned() -> list[str]:
    """Remove folders and control groups of clusters whose session was killed; returns their names."""
    abandoned = abandoned_folders()
    for folder in abandoned:
        for group in control_groups.groups_named(folder.name):
            control_groups.remove_groups(group)
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in abandoned]


def _folders() -> list[Path]:
    return sorted(folder for folder in HOME.glob(f"{PREFIX}*") if _has_lock(folder))


def _has_lock(folder: Path) -> bool:
    """False for a folder of another user, which this one may not read."""
    with suppress(PermissionError):
        return (folder / LOCK).exists()
    return False


def _read(folder: Path) -> ClusterSession | None:
    """None for a cluster that is still starting or has just ended."""
    with suppress(FileNotFoundError):
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=ClusterSession)
    return None


def _is_held(folder: Path) -> bool:
    with suppress(FileNotFoundError), (folder / LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
