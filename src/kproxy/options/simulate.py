"""Options of ``kproxy simulate``: rows of the table.  Pure."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

from kproxy.options.option import CommandOption, OptionUser, positive_int, positive_seconds, switch
from kproxy.options.paths import output_file, output_folder

SHORTEST = 30.0
"""Seconds of the shortest universe of a seed."""


def seed_range(text: str) -> range:
    """Seeds: ``7``, or ``0..99`` with both ends.  Raises `ArgumentTypeError`."""
    first, _, last = text.partition("..")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: give a number, or a range such as 0..99") from error
    if not seeds:
        raise ArgumentTypeError(f"{text}: the range is empty")
    return seeds


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``number`` of ``count``, from 1."""

    number: int
    count: int

    def part(self, seeds: range) -> range:
        """The seeds of this part: those of all parts are all."""
        return seeds[self.number - 1 :: self.count]


def shard(text: str) -> Shard:
    """Shard: ``2/4``.  Raises `ArgumentTypeError`."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise ArgumentTypeError(f"{text}: give a part and the number of parts, such as 1/4")
    return Shard(int(number), int(count))


def universe_length(text: str) -> float:
    """Seconds of a universe.  Raises `ArgumentTypeError`."""
    seconds = positive_seconds(text)
    if seconds < SHORTEST:
        raise ArgumentTypeError(
            f"{text}: give {SHORTEST:g} seconds or more: earlier there are no changes that can be judged"
        )
    return seconds


def namespace_command(text: str) -> str:
    """A command after the namespace that it runs in.  Raises `ArgumentTypeError`."""
    if len(text.split()) < 2:
        raise ArgumentTypeError(f"{text}: give a namespace and a command, such as 'client ip route'")
    return text


_SIMULATE = (
    CommandOption(
        name="--seeds",
        users=OptionUser.SIMULATE,
        metavar="N|N..M",
        type=seed_range,
        default=range(10),
        default_text="`0..9`",
        help="seeds of the universes; a seed always gives the same one",
    ),
    CommandOption(
        name="--shard",
        users=OptionUser.SIMULATE,
        metavar="I/N",
        type=shard,
        default=Shard(1, 1),
        default_text="all seeds",
        help="play the I-th of N parts of the seeds, so that N machines share them",
    ),
    CommandOption(
        name="--length",
        users=OptionUser.SIMULATE,
        metavar="SECONDS",
        type=universe_length,
        default=None,
        default_text="some 330",
        help="longest that a universe of a seed lasts, in its own time: later changes, faults and packets are left out; with another length, a seed gives another universe",
    ),
    CommandOption(
        name="--other-proxy",
        users=OptionUser.SIMULATE,
        metavar="NAME|FILE.toml",
        default_text="that of `--proxy`",
        help="another version: one node's proxy is replaced by it, and it by the first, while packets go on",
    ),
    CommandOption(
        name="--other-binary",
        users=OptionUser.SIMULATE,
        metavar="PATH",
        default_text="that of `--binary`",
        help="the program of that version",
    ),
    CommandOption(
        name="--replay",
        users=OptionUser.SIMULATE,
        metavar="FILE",
        type=Path,
        default=None,
        help="the schedule of a file, as a failing universe leaves it, instead of seeds; known deviations are not excused there",
    ),
    CommandOption(
        name="--out",
        users=OptionUser.SIMULATE,
        metavar="DIR",
        type=output_folder,
        default=Path("universes"),
        field="directory",
        help="folder for the schedules of universes that fail, and for what `--until` reads",
    ),
    CommandOption(
        name="--results",
        users=OptionUser.SIMULATE,
        metavar="FILE",
        type=output_file,
        default=None,
        help="append a JSON line for each universe; files of several machines are merged by `cat`",
    ),
    CommandOption(
        name="--until",
        users=OptionUser.SIMULATE,
        metavar="SECONDS",
        type=positive_seconds,
        default=None,
        help="stop each universe there, and write the nodes' rules, connections, addresses and logs to the folder of `--out`",
    ),
    CommandOption(
        name="--exec",
        users=OptionUser.SIMULATE,
        metavar="'NAMESPACE COMMAND'",
        repeatable=True,
        type=namespace_command,
        field="commands",
        help="another command to run where `--until` stops: `'client ip route'`; namespaces are `a`, `b` (nodes), `a1`, `b1` (pods), `client`",
    ),
    switch(
        name="--shell",
        users=OptionUser.SIMULATE,
        help="read more such commands where `--until` stops, from standard input, each `NAMESPACE COMMAND`, until an empty line",
    ),
    switch(
        name="--no-shrink",
        users=OptionUser.SIMULATE,
        help="write no schedules, instead of searching for the shortest that fails",
    ),
    CommandOption(
        name="--parallel",
        users=OptionUser.SIMULATE,
        metavar="N",
        type=positive_int,
        default=0,
        default_text="one for each processor",
        help="number of universes at once",
    ),
)

SIMULATE_GROUPS = {"universes": _SIMULATE}
"""All rows, by the heading that ``--help`` gives them."""
