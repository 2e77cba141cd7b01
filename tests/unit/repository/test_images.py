"""Making the image, where something is missing that it is made with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

REPOSITORY = ROOT


def test_without_the_python_package_it_names_the_command_that_installs_it(tmp_path: Path) -> None:
    absent = "raise ModuleNotFoundError(\"No module named 'docker'\", name='docker')"
    (tmp_path / "docker.py").write_text(absent)
    done = subprocess.run(
        [sys.executable, "-m", "images.build"],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install '.[kind]'" in done.stderr


def test_without_an_engine_it_names_the_program_to_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "images.build"],
        cwd=REPOSITORY,
        env=os.environ | {"DOCKER_HOST": "tcp://127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is dockerd running?" in done.stderr
