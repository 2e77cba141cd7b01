"""The bare tool on the same rules: the lower bound for any proxy that uses it.

The text is what `kproxy` would write for the same cluster, IPv4, with the jumps from the builtin chains:
only what they reach does the kernel check at each commit, and that is most of what one costs.  It goes
into fresh namespaces with the same tools, and time runs while ``iptables-restore`` does.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.namespaces import LabError, Namespace, create_namespace
from kproxy.lab.processes import Xtables, xtables_directory
from kproxy.proxy.backends.iptables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.iptables.diff import diff
from kproxy.proxy.backends.iptables.static_rules import Options, hook_rules
from kproxy.proxy.backends.nftables import desired_state as nftables
from kproxy.proxy.backends.nftables import diff as nftables_diff
from kproxy.proxy.backends.nftables.static_rules import Options as NftablesOptions
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS, NFT_BLOCK_CHAINS, Block
from kproxy.proxy.backends.xtables.rules import TableName, hook_specification
from kproxy.proxy.plan import Plan
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
        desired = desired_state(plan, _OPTIONS)
        self.ways = _ways(desired, variant, directory)
        self._service = directory / "service.rules"
        self._service.write_text(_service_text(desired, live))
        self._full: Namespace | None = None

    def whole(self, way: Way) -> Cost:
        """Restore everything into a new namespace, which is kept for `service`."""
        self.close()
        self._full = create_namespace("floor")
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
        command = (str(self._tools / "iptables-restore"), *arguments)
        return timed(self._full, command, text, environment)


class NftablesFloor:
    """``nft -f`` of one plan, and of what moves the one endpoint of a Service there and back."""

    def __init__(self, plan: Plan, moved: Plan, directory: Path) -> None:
        """``moved``: the plan after that change; files are kept in ``directory``."""
        here = nftables.desired_state(plan, NftablesOptions())
        there = nftables.desired_state(moved, NftablesOptions(), here)
        whole = directory / "whole.nft"
        whole.write_text(str(nftables_diff.diff(None, here)))
        self.ways = (Way("nft -f", whole, ()),)
        self._changes = (directory / "there.nft", directory / "back.nft")
        self._changes[0].write_text(str(nftables_diff.diff(here, there)))
        self._changes[1].write_text(str(nftables_diff.diff(there, here)))
        self._turn = 0
        self._full: Namespace | None = None

    def whole(self, way: Way) -> Cost:
        """Load everything into a new namespace, which is kept for `service`."""
        self.close()
        self._full, self._turn = create_namespace("floor"), 0
        return timed(self._full, ("nft", "-f", "-"), way.text, os.environ)

    def service(self) -> Cost:
        """Move the endpoint in the namespace that holds everything."""
        assert self._full is not None
        text = self._changes[self._turn % 2]
        self._turn += 1
        return timed(self._full, ("nft", "-f", "-"), text, os.environ)

    def close(self) -> None:
        """Let go of the namespace."""
        if self._full is not None:
            self._full.close()
            self._full = None


def timed(namespace: Namespace, command: Sequence[str], stdin: Path, environment: Mapping[str, str]) -> Cost:
    """Run a tool inside on a file; wall and CPU time.  `LabError` when it fails."""
    with stdin.open("rb") as text:
        started = time.monotonic()
        process = namespace.start(command, stdin=text, env=environment, stderr=subprocess.PIPE)
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise LabError(f"{' '.join(command)}: {errors.decode(errors='replace').strip()}")
    return Cost(seconds, used.ru_utime + used.ru_stime)


def _ways(desired: DesiredState, variant: Xtables, directory: Path) -> tuple[Way, ...]:
    """One flushing block a table; and adding, in the blocks that suit the variant.

    iptables-nft needs time quadratic in the chains to add everything in one block.
    """
    blocks = NFT_BLOCK_CHAINS if variant is Xtables.NFT else LEGACY_BLOCK_CHAINS
    ways = (
        Way("flush", directory / "flush.rules", ()),
        Way("noflush", directory / "noflush.rules", ("--noflush",)),
    )
    for way, block_chains in zip(ways, (LEGACY_BLOCK_CHAINS, blocks), strict=True):
        with way.text.open("w") as file:
            file.writelines(map(str, _hooked(tuple(diff({}, desired, block_chains)))))
    return ways


def _hooked(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """The jumps from the builtin chains at the end of each table's last block."""
    last = {block.table: number for number, block in enumerate(blocks)}
    for number, block in enumerate(blocks):
        jumps = _jumps(block.table) if last[block.table] == number else ()
        yield Block(block.table, [*block.lines, *jumps])


def _jumps(table: TableName) -> Iterator[str]:
    for hook in hook_rules(localhost=False):
        if hook.table is table:
            yield from (f"-A {hook.hook.name} {hook_specification(rule)}" for rule in hook.rules)


def _service_text(desired: DesiredState, live: Live) -> str:
    chains = next(f.own_lines() for name, f in desired.service_rules.items() if name.name == live.name)
    lines = [f":{name} - [0:0]" for name in chains] + [line for lines in chains.values() for line in lines]
    return "\n".join(("*nat", *lines, "COMMIT", ""))
