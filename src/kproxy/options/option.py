"""Shape of a row of the table of options, and the types of values.  Pure."""

from __future__ import annotations

import argparse
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

_LINK = re.compile(r"\[([^]]*)\]\(([^)]*)\)")
"""A link in Markdown: its text and its target."""


class OptionUser(enum.Flag):
    """A command, or another program, that takes options; an option names all that take it."""

    RUN = enum.auto()
    FUZZ = enum.auto()
    CLUSTER = enum.auto()
    REPORT = enum.auto()
    LIST = enum.auto()
    SHOW = enum.auto()
    COMPARE = enum.auto()
    LAB_DOCTOR = enum.auto()
    LAB_KERNEL_BUILD = enum.auto()
    LAB_KERNEL_FETCH = enum.auto()
    LAB_UP = enum.auto()
    LAB_EXEC = enum.auto()
    LAB_KUBECTL = enum.auto()
    LAB_DOWN = enum.auto()
    LAB_CLUSTER_UP = enum.auto()
    LAB_CLUSTER_FETCH = enum.auto()
    LAB_CLUSTER_EXEC = enum.auto()
    LAB_CLUSTER_KUBECTL = enum.auto()
    LAB_CLUSTER_KUBECONFIG = enum.auto()
    LAB_CLUSTER_DOWN = enum.auto()
    SPEC_SHOW = enum.auto()
    EXPLAIN = enum.auto()
    TRACE = enum.auto()
    SIMULATE = enum.auto()
    COMPLETION = enum.auto()
    VERIFY = enum.auto()
    VERSION = enum.auto()
    PYTEST = enum.auto()
    """``pytest --pyargs kproxy.conformance``."""
    ACTION = enum.auto()
    """Inputs of ``action.yml``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """An option, or a positional argument where ``name`` has no dashes.

    ``help``: Markdown on one line, links relative to ``docs/``; ``--help`` shows it without the targets.
    ``type``: from the text of a value; `bool` for a switch without a value.
    ``default_text``: text of the default, where ``default`` stands for a choice made at run time.
    ``nargs``: of argparse, for positional arguments.  ``field``: of the value that a command takes, if not the name's.
    ``old_name``: accepted for one release, with a notice.
    """

    name: str
    users: OptionUser
    help: str
    short: str = ""
    metavar: str = ""
    type: Callable[[str], object] = str
    default: object = ""
    default_text: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    repeatable: bool = False
    nargs: str = ""
    field: str = ""
    old_name: str = ""

    @property
    def destination(self) -> str:
        """Name of the field that the parsed value goes to."""
        return self.field or self.name.lstrip("-").replace("-", "_")

    @property
    def is_switch(self) -> bool:
        """True for an option that takes no value."""
        return self.type is bool

    @property
    def is_positional(self) -> bool:
        """True for an argument that is known by its place."""
        return not self.name.startswith("-")

    @property
    def usage(self) -> str:
        """The option as it is typed: ``--case GLOB``."""
        value = self.metavar or "|".join(self.choices)
        names = f"{self.short}, {self.name}" if self.short else self.name
        if self.is_positional:
            return self.metavar
        return names if self.is_switch else f"{names} {value}"

    @property
    def markdown(self) -> str:
        """Its meaning, with the default and whether it may be given several times."""
        return self._described("`")

    @property
    def plain(self) -> str:
        """The same for a terminal, without the targets of links."""
        return _LINK.sub(r"\1", self._described(""))

    @property
    def action_description(self) -> str:
        """Its meaning as the description of an input of ``action.yml``, where links are paths."""
        return _LINK.sub(r"\1 (docs/\2)", self.help).replace("`", "")

    def _described(self, quote: str) -> str:
        default = self.default_text or (f"{quote}{self.default}{quote}" if self.default else "")
        remarks = ["required"] if self.required and not self.is_positional else []
        remarks += [f"default: {default}"] if default else []
        remarks += ["repeatable"] if self.repeatable else []
        return f"{self.help} ({'; '.join(remarks)})" if remarks else self.help


switch = partial(CommandOption, type=bool, default=False)
"""An option without a value, off by default."""


def positive_int(text: str) -> int:
    """A whole number, at least 1.  Raises `argparse.ArgumentTypeError`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number, 1 or more")
    return int(text)


def positive_seconds(text: str) -> float:
    """A finite time in seconds, more than 0.  Raises `argparse.ArgumentTypeError`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give a number of seconds, more than 0")
    return seconds
