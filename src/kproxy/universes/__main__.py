"""The process inside a universe: ``python -m kproxy.universes FILE PROXY BINARY MODE VARIANT``; see `kproxy.universes.launch`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.environment import iptables_variant
from kproxy.universes.play import play_schedule
from kproxy.universes.schedule_files import load_schedule

if __name__ == "__main__":
    file, proxy, binary, mode, variant = sys.argv[1:]
    subject = load_subject(proxy, binary)
    played = play_schedule(load_schedule(Path(file)), subject, mode, iptables_variant(variant))
    sys.exit(asyncio.run(played))
