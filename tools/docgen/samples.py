"""Samples in a page are real: each ``$ kproxy ...`` is run again and what it prints stands below it.

For commands that read files of the repository and print the same everywhere.
"""

from __future__ import annotations

import io
import re
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from kproxy.cli import main

ROOT = Path(__file__).parents[2]
SAMPLE = re.compile(r"^```text\n\$ kproxy (.*)\n[^`]*```$", re.MULTILINE)


def refresh_samples(path: Path) -> str:
    """The page with the output of every sample as it is now."""
    return SAMPLE.sub(_sample, path.read_text(encoding="utf-8"))


def _sample(found: re.Match[str]) -> str:
    printed = io.StringIO()
    with chdir(ROOT), redirect_stdout(printed), redirect_stderr(printed):
        main(shlex.split(found[1]))
    return f"```text\n$ kproxy {found[1]}\n{printed.getvalue().rstrip()}\n```"
