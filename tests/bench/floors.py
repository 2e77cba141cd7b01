"""The bare tool on the same rules: what no proxy that uses it can be quicker than.

The text is what `kproxy` would write for the same cluster, IPv4; it goes into fresh namespaces with the
same tools, and time runs while ``iptables-restore`` does.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kproxy.backends.iptables.base import Options
from kproxy.backends.iptables.diff import LEGACY_BLOCK_CHAINS, NFT_BLOCK_CHAINS, diff
from kproxy.backends.iptables.program import Program, program
from kproxy.lab.namespaces import LabError, Namespace, create
from kproxy.lab.processes import Xtables, xtables_directory
from kproxy.plan import Plan
from tests.bench.results import Cost
from tests.bench.world import Live

_OPTIONS = Options(1 << 14, random_fully=True, drop_invalid=True)


@dataclass(frozen=True, slots=True)
class Way:
    """A way of writing the whole rule set."""

    name: str
    text: Path
    arguments: tuple[str, ...]


class IptablesFloor:
    """``iptables-restore`` of one variant on one plan; files are kept in ``directory``."""

    def __init__(self, plan: Plan, live: Live, variant: Xtables, directory: Path) -> None:
        """``live``: the Service whose chains are restored alone."""
        self._tools = xtables_directory(directory / "bin", variant)
        self._lock = directory / "xtables.lock"
        desired = program(plan, _OPTIONS)
        self.ways = _ways(desired, variant, directory)
        self._service = directory / "service.rules"
        self._service.write_text(_service_text(desired, live))
        self._full: Namespace | None = None

    def whole(self, way: Way) -> Cost:
        """Restore everything into a new namespace, which is kept for `service`."""
        self.close()
        self._full = create("floor")
        return self._restore(way.text, way.arguments)

    def service(self) -> Cost:
        """Restore one Service's chains into the namespace that holds everything."""
        return self._restore(self._service, ("--noflush",))

    def close(self) -> None:
        """Let go of the namespace."""
        if self._full is not None:
            self._full.close()
            self._full = None

    def _restore(self, text: Path, arguments: tuple[str, ...]) -> Cost:
        assert self._full is not None
        environment = {
            **os.environ,
            "PATH": f"{self._tools}:{os.environ.get('PATH', os.defpath)}",
            "XTABLES_LOCKFILE": str(self._lock),
        }
        with text.open("rb") as rules:
            started = time.monotonic()
            command = (str(self._tools / "iptables-restore"), *arguments)
            process = self._full.start(command, stdin=rules, env=environment, stderr=subprocess.PIPE)
            assert process.stderr is not None
            errors = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        if process.returncode:
            raise LabError(f"{' '.join(command)}: {errors.decode(errors='replace').strip()}")
        return Cost(seconds, used.ru_utime + used.ru_stime)


def _ways(desired: Program, variant: Xtables, directory: Path) -> tuple[Way, ...]:
    """One flushing block a table; and adding, in the blocks that suit the variant.

    iptables-nft needs time quadratic in the chains to add everything in one block.
    """
    blocks = NFT_BLOCK_CHAINS if variant is Xtables.NFT else LEGACY_BLOCK_CHAINS
    texts: Mapping[str, tuple[int, tuple[str, ...]]] = {
        "flush": (LEGACY_BLOCK_CHAINS, ()),
        "noflush": (blocks, ("--noflush",)),
    }
    ways = []
    for name, (block_chains, arguments) in texts.items():
        path = directory / f"{name}.rules"
        path.write_text(str(diff({}, desired, block_chains)))
        ways.append(Way(name, path, arguments))
    return tuple(ways)


def _service_text(desired: Program, live: Live) -> str:
    chains = next(f.text() for name, f in desired.fragments.items() if name.name == live.name)
    lines = [f":{name} - [0:0]" for name in chains] + [line for lines in chains.values() for line in lines]
    return "\n".join(("*nat", *lines, "COMMIT", ""))
