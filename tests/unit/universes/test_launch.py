"""Environment of guests, and bytecode that they share: made once, made again when sources are newer, and done without where it cannot be."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from kproxy.universes import launch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(launch, "_IN_GUESTS", ("kproxy.options",))
    return tmp_path / "kproxy" / "bytecode"


def found() -> str:
    launch.bytecode_folder.cache_clear()
    try:
        return launch.bytecode_folder()
    finally:
        launch.bytecode_folder.cache_clear()


def test_bytecode_is_made_once_and_again_when_sources_are_newer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(found()).parent == folder
    (compiled,) = folder.rglob("simulate.*.pyc")
    first = compiled.stat().st_mtime_ns
    run = mock.Mock(wraps=subprocess.run)
    monkeypatch.setattr(subprocess, "run", run)
    assert found()
    run.assert_not_called()
    os.utime(next(folder.rglob("filled")), (0, 0))
    assert found()
    run.assert_called_once()
    assert compiled.stat().st_mtime_ns == first, "Python itself has found it to be of that source"


def test_where_no_bytecode_can_be_made_guests_compile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.mkdir()
    folder.write_text("in the way")
    assert found() == ""
    folder.unlink()
    monkeypatch.setattr(launch, "_IN_GUESTS", ("kproxy.missing",))
    assert found() == ""
    assert found() == "", "a failed attempt is no success later"
    monkeypatch.setenv("XDG_CACHE_HOME", "/run/cache")
    assert found() == "", "a guest has its own /run"


def test_folders_that_are_not_there_or_are_there_before_make_no_other_universe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    plain = launch.constant_environment()
    monkeypatch.setenv("PATH", "/nowhere:/usr/bin:/usr/bin:nowhere")
    assert launch.constant_environment() == plain
    monkeypatch.setenv("PATH", ".:/usr/bin")
    assert launch.constant_environment()["PATH"] == f"{tmp_path}:/usr/bin"
