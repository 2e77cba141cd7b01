"""How commands find a running cluster, and what a killed one has left."""

import os
from pathlib import Path

import msgspec
import pytest

from kproxy.lab.cluster import cluster, control_groups, session
from kproxy.lab.namespaces import LabError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(session, "HOME", tmp_path)
    return tmp_path


def made(home: Path, name: str) -> Path:
    """Folder of a cluster whose lock nobody holds."""
    folder = home / f"{cluster.PREFIX}{name}"
    folder.mkdir()
    (folder / cluster.LOCK).touch()
    found = session.ClusterSession(
        name=name,
        pid=os.getpid(),
        kubectl="/k/kubectl",
        kubeconfig=str(folder / "kubeconfig"),
        nodes={"node-1": os.getpid()},
        namespaces={"client": "/proc/1/fd/7"},
    )
    (folder / "session.json").write_bytes(msgspec.json.encode(found))
    return folder


def test_a_cluster_is_found_by_name_while_its_process_lives(home: Path) -> None:
    one, _ = made(home, "one"), made(home, "two")
    lock = cluster.hold(one)
    assert session.find_session("one").name == "one"
    with pytest.raises(LabError, match="no cluster called two is running here"):
        session.find_session("two")
    os.close(lock)
    with pytest.raises(LabError, match="no cluster called one"):
        session.find_session("one")


def test_only_what_has_no_process_is_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    groups = tmp_path_factory.mktemp("groups")
    (groups / "cgroup.controllers").touch()
    monkeypatch.setattr(session.control_groups, "ROOT", groups)  # type: ignore[attr-defined]
    removed = list[str]()
    monkeypatch.setattr(session.control_groups, "groups_named", lambda name: {f"{name}-node-1"})  # type: ignore[attr-defined]
    monkeypatch.setattr(session.control_groups, "remove_groups", removed.append)  # type: ignore[attr-defined]
    running, left = made(home, "running"), made(home, "left")
    lock = cluster.hold(running)
    assert session.remove_abandoned() == [left.name]
    assert removed == [f"{left.name}-node-1"]
    assert running.exists()
    assert not left.exists()
    os.close(lock)


def test_places_are_entered_and_others_are_named(home: Path) -> None:
    lock = cluster.hold(made(home, "one"))
    found = session.find_session("one")
    entered, program = found.command("client", ["true"])[:3], found.command("client", ["true"])[3:]
    assert entered == ["nsenter", "--net=/proc/1/fd/7", "--"]
    kubeconfig = Path(found.kubeconfig).with_name(cluster.INSIDE_KUBECONFIG)
    assert program == ["env", f"KUBECONFIG={kubeconfig}", "true"]
    assert found.kubectl_command(["get", "pods"])[-2:] == ["get", "pods"]
    with pytest.raises(LabError, match="there is no node/x in this cluster: there are node/node-1, client"):
        found.command("node/x", ["true"])
    os.close(lock)


@pytest.mark.parametrize("version", [1, 2])
def test_groups_are_made_in_every_hierarchy_and_removed_with_all_below(tmp_path: Path, version: int) -> None:
    places = [tmp_path] if version == 2 else [tmp_path / "cpu", tmp_path / "cpuset"]
    for place in places:
        place.mkdir(exist_ok=True)
        (place / "cgroup.procs").touch()
    if version == 2:
        (tmp_path / "cgroup.controllers").touch()
    control_groups.make_groups("x-1", tmp_path)
    assert control_groups.groups_named("x-", tmp_path) == {"x-1"}
    for place in places:
        (place / "x-1" / "kubepods" / "pod").mkdir(parents=True)
    control_groups.remove_groups("x-1", tmp_path)
    assert control_groups.groups_named("x-", tmp_path) == set()


def test_a_group_that_is_there_already_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    control_groups.make_groups("x", tmp_path)
    with pytest.raises(LabError, match="cannot make the control group"):
        control_groups.make_groups("x", tmp_path)
