"""A configuration file and the ways it changes."""

import os
from pathlib import Path

import pytest

from kproxy.proxy.daemon.config.file_watch import WatchedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as a ConfigMap volume has it: a link to a file in a folder that is itself a link."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one/config").write_text("a: 1")
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "config").symlink_to("..data/config")
    return tmp_path / "config"


def exchange(path: Path, text: str) -> None:
    """What the kubelet does when a ConfigMap changes."""
    folder = path.parent
    (folder / "two").mkdir()
    (folder / "two/config").write_text(text)
    (folder / "new").symlink_to("two")
    (folder / "new").rename(folder / "..data")


def test_a_file_that_is_not_touched_has_not_changed(path: Path) -> None:
    watched = WatchedFile(path, path.read_bytes())
    assert [watched.changed() for _ in range(3)] == [False] * 3


def test_a_file_that_is_written_to_has_changed(path: Path) -> None:
    watched = WatchedFile(path, path.read_bytes())
    assert not watched.changed()
    path.write_text("a: 2")
    assert watched.changed()
    assert watched.changed(), "it is reported until the caller acts"


def test_an_exchanged_link_is_a_change(path: Path) -> None:
    watched = WatchedFile(path, path.read_bytes())
    assert not watched.changed()
    exchange(path, "a: 2")
    assert watched.changed()


def test_a_file_that_changed_before_the_first_look_has_changed(path: Path) -> None:
    watched = WatchedFile(path, b"a: 0")
    assert watched.changed()


def test_the_same_content_again_is_no_change(path: Path) -> None:
    watched = WatchedFile(path, path.read_bytes())
    assert not watched.changed()
    exchange(path, "a: 1")
    assert not watched.changed()
    os.utime(path)
    assert not watched.changed()


def test_a_file_that_is_away_for_a_while_has_not_changed(path: Path) -> None:
    watched = WatchedFile(path, path.read_bytes())
    (path.parent / "..data").rename(path.parent / "away")
    assert not watched.changed()
    (path.parent / "away").rename(path.parent / "..data")
    assert not watched.changed()


def test_waiting_ends_with_the_change(path: Path) -> None:
    reported: list[str] = []
    WatchedFile(path, b"another").wait(lambda: reported.append("changed"))
    assert reported == ["changed"]
