"""Where the lab finds the tools that it puts in front of PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import Xtables, xtables_directory

UNREADABLE = "/" + 300 * "x"
"""What nobody may look into; for root no permission does that."""


def test_a_folder_of_path_that_cannot_be_looked_into_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / Xtables.LEGACY.value
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((UNREADABLE, str(tmp_path))))
    links = xtables_directory(tmp_path / "links", Xtables.LEGACY)
    assert (links / "ip6tables-restore").resolve() == program


def test_a_variant_that_is_not_there_is_an_error_that_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.lab.processes._search_path", lambda: str(tmp_path))
    with pytest.raises(LabError, match="install the iptables package"):
        xtables_directory(tmp_path / "links", Xtables.NFT)
