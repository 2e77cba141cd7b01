"""The process inside a universe: ``python -m kproxy.universes FILE PROXY BINARY MODE VARIANT [--other PROXY BINARY] [UNTIL [COMMAND...]]``; see `kproxy.universes.launch`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.environment import iptables_variant
from kproxy.universes.event_loop import UniverseLoop
from kproxy.universes.launch import OTHER
from kproxy.universes.play import play_schedule
from kproxy.universes.schedule_files import read_schedule
from kproxy.universes.stop import parse_stop

if __name__ == "__main__":
    file, proxy, binary, mode, variant, *rest = sys.argv[1:]
    others, stop = (rest[1:3], rest[3:]) if rest[:1] == [OTHER] else ([], rest)
    subjects = [load_subject(proxy, binary), *([load_subject(*others)] if others else ())]
    schedule = read_schedule(Path(file))
    played = play_schedule(schedule, subjects, mode, iptables_variant(variant), parse_stop(stop))
    with asyncio.Runner(loop_factory=UniverseLoop) as runner:
        sys.exit(runner.run(played))
