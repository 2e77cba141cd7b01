"""What is reported of a machine that was changed, and what a subject may not write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kproxy.conformance.testbeds import disk_watch
from kproxy.conformance.testbeds.disk_watch import DiskWatch, read_tail
from kproxy.lab.faults import machine_state
from kproxy.lab.faults.machine_state import (
    INHERITED,
    inherited_by_labs,
    machine_state_changes,
    read_machine_state,
)
from kproxy.lab.namespaces import LabError


def test_what_came_and_went_is_reported_by_its_place() -> None:
    before = {"nftables": "table ip a {\n}\n", "sysctl vm/swappiness": "60", "sets": "x"}
    after = {"nftables": "table ip a {\n}\ntable ip b {\n}\n", "sysctl vm/swappiness": "1", "sets": "x"}
    assert machine_state_changes(before, after) == [
        "nftables: + table ip b",
        "sysctl vm/swappiness: - 60, + 1",
    ]
    assert machine_state_changes(before, before) == []


def test_of_many_lines_some_are_reported() -> None:
    (reported,) = machine_state_changes({"sets": ""}, {"sets": "\n".join("abcdefgh")})
    assert reported.endswith("+ e, and 3 more lines")


def test_settings_that_come_with_a_device_are_no_change() -> None:
    assert machine_state_changes({}, {"sysctl net/ipv4/conf/eth9/forwarding": "1"}) == []


def test_labs_depend_on_the_network_sysctls_of_new_namespaces_and_on_nothing_else() -> None:
    before = {
        "nftables": "",
        "sysctl vm/swappiness": "60",
        "sysctl net/ipv4/ip_forward": "0",
        f"{INHERITED}net/ipv4/ip_forward": "0",
    }
    rules = {
        **before,
        "nftables": "table ip b {}",
        "sysctl vm/swappiness": "1",
        "sysctl net/ipv4/ip_forward": "1",
    }
    assert machine_state_changes(inherited_by_labs(before), inherited_by_labs(rules)) == []
    inherited = {**before, f"{INHERITED}net/ipv4/ip_forward": "1"}
    assert machine_state_changes(inherited_by_labs(before), inherited_by_labs(inherited)) == [
        f"{INHERITED}net/ipv4/ip_forward: - 0, + 1"
    ]


def test_where_no_namespace_can_be_made_all_network_sysctls_count() -> None:
    before = {"sysctl vm/swappiness": "60", "sysctl net/ipv4/ip_forward": "0"}
    after = {"sysctl vm/swappiness": "1", "sysctl net/ipv4/ip_forward": "1"}
    assert machine_state_changes(inherited_by_labs(before), inherited_by_labs(after)) == [
        "sysctl net/ipv4/ip_forward: - 0, + 1"
    ]


def test_a_machine_that_rests_does_not_change() -> None:
    seen = read_machine_state()
    assert "sysctl vm/swappiness" in seen
    assert not [
        line for line in machine_state_changes(seen, read_machine_state()) if line.startswith("sysctl vm/")
    ]


def test_too_much_on_the_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, folder = tmp_path / "log", tmp_path / "folder"
    folder.mkdir()
    log.write_bytes(b"x" * (2 << 20))
    guard = DiskWatch(tmp_path)
    assert guard.limit_exceeded(log, folder) == ""
    monkeypatch.setattr(disk_watch, "LARGEST_LOG", 1 << 20)
    assert guard.limit_exceeded(log, folder) == "floods its log: 2 MiB, 1 are allowed"
    monkeypatch.setattr(disk_watch, "LARGEST_FOLDER", 1 << 20)
    log.rename(folder / "data")
    assert guard.limit_exceeded(log, folder) == "fills the disk: 2 MiB in {directory}, 1 are allowed"


def test_folders_that_go_while_they_are_looked_at_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "file").touch()
    size = disk_watch._size

    def size_as_the_other_goes(path: Path) -> int:
        if path.name == "file":
            shutil.rmtree(second if path.parent == first else first, ignore_errors=True)
        return size(path)

    monkeypatch.setattr(disk_watch, "_size", size_as_the_other_goes)
    assert DiskWatch(tmp_path).limit_exceeded(tmp_path / "log", tmp_path) == ""
    assert [first.exists(), second.exists()].count(True) == 1


def test_the_end_of_a_file_is_read_without_the_rest(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a" * 100 + b"end")
    assert read_tail(tmp_path / "log", 4) == "aend"
    assert read_tail(tmp_path / "log", 1000).endswith("aend")


def test_a_tool_that_does_not_end_is_reported_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_state, "_RULES", {"sets": ("sleep", "60")})
    monkeypatch.setattr(machine_state, "_MOST_SECONDS", 0.1)
    with pytest.raises(LabError, match=r"^sleep 60 has not ended within 0.1 s"):
        read_machine_state()
