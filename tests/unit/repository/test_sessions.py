"""nox, told to end: a tool that goes on without it may keep a guest running for as long as its work takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.paths import ROOT

SESSIONS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from noxfile import *

@nox.session(python=False)
def patient(session):
    session.run("sh", "-c", "sleep 0.5; echo $$; exec sleep 1000", external=True)
"""


def test_it_takes_its_tools_along(tmp_path: Path) -> None:
    (tmp_path / "noxfile.py").write_text(SESSIONS, encoding="utf-8")
    arguments = [sys.executable, "-m", "nox", "-f", str(tmp_path / "noxfile.py"), "-s", "patient"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, start_new_session=True) as nox:
        assert nox.stdout
        tool = next(int(line) for line in nox.stdout if line.strip().isdigit())
        try:
            nox.send_signal(signal.SIGTERM)
            assert nox.wait(30)
            assert not Path(f"/proc/{tool}").exists()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(nox.pid, signal.SIGKILL)
