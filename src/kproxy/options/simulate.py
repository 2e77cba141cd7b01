"""Options of ``kproxy simulate``: rows of the table.  Pure."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

from kproxy.options.option import CommandOption, Front, positive_int, switch


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


SIMULATE_OPTIONS = (
    CommandOption(
        name="--seeds",
        fronts=Front.SIMULATE,
        metavar="N|N..M",
        type=seed_range,
        default=range(10),
        default_text="`0..9`",
        help="seeds of the universes; a seed always gives the same one",
    ),
    CommandOption(
        name="--replay",
        fronts=Front.SIMULATE,
        metavar="FILE",
        type=Path,
        default=None,
        help="the schedule of a file, as a failing universe leaves it, in place of seeds",
    ),
    CommandOption(
        name="--out",
        fronts=Front.SIMULATE,
        metavar="DIR",
        type=Path,
        default=Path("universes"),
        field="directory",
        help="folder for the schedules of universes that fail",
    ),
    switch(
        name="--no-shrink",
        fronts=Front.SIMULATE,
        help="write no schedules, instead of searching for the shortest that fails",
    ),
    CommandOption(
        name="--parallel",
        fronts=Front.SIMULATE,
        metavar="N",
        type=positive_int,
        default=0,
        default_text="one for each processor",
        help="number of universes at once",
    ),
)
