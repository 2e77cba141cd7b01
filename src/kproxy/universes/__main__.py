"""The process inside a universe: ``python -m kproxy.universes FILE PROXY BINARY MODE VARIANT [OTHER_PROXY OTHER_BINARY]``; see `kproxy.universes.launch`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.environment import iptables_variant
from kproxy.universes.event_loop import UniverseLoop
from kproxy.universes.play import play_schedule
from kproxy.universes.schedule_files import read_schedule

if __name__ == "__main__":
    file, proxy, binary, mode, variant, *other = sys.argv[1:]
    subjects = [load_subject(proxy, binary), *([load_subject(*other)] if other else ())]
    schedule = read_schedule(Path(file))
    played = play_schedule(schedule, subjects, mode, iptables_variant(variant), Path(file).parent)
    with asyncio.Runner(loop_factory=UniverseLoop) as runner:
        sys.exit(runner.run(played))
