"""Parser of a command line by pflag's rules; all errors are reported at once.

Above `kproxy.proxy.daemon.config.flag_table`, which lists the flags; `kproxy.proxy.daemon.config.resolve` makes a
configuration of the result. Pure. Not argparse: ``--masquerade-all false``, ``--v``, ``-v4``, underscores for dashes,
repeated lists and Go's numbers and durations mean here what they mean to kube-proxy, so that a DaemonSet's arguments
need no change.

Syntax: https://pkg.go.dev/github.com/spf13/pflag#readme-command-line-flag-syntax
"""

from __future__ import annotations

import csv
import difflib
import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kproxy.proxy.daemon.config.duration import Duration

Value = str | bool | int | float | Duration | tuple[str, ...] | Mapping[str, bool] | Mapping[str, int]


class FlagType(enum.Enum):
    """Type of a flag's value; the enum value is its name in the usage text."""

    STRING = "string"
    BOOL = ""
    INT = "int32"
    FLOAT = "float32"
    DURATION = "duration"
    LIST = "strings"
    GATES = "mapStringBool"
    PATTERNS = "pattern=N,..."
    VERSION = "version[=true]"


@dataclass(frozen=True, slots=True)
class Flag:
    """``--name``; ``help``: its line in the usage text, ``deprecated``: its replacement."""

    name: str
    type: FlagType
    help: str
    short: str = ""
    deprecated: str = ""


class FlagError(Exception):
    """Invalid command line; ``problems`` holds every error, ``str()`` one per line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """Values of the given flags by name, and warnings about them."""

    values: Mapping[str, Value] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Value of a string flag, empty when it was not given."""
        return str(self.values.get(name, ""))

    def is_set(self, name: str) -> bool:
        """True if a boolean flag is set."""
        return self.values.get(name, False) is not False


def parse_flags(arguments: Sequence[str], flags: Sequence[Flag], removed: Mapping[str, str]) -> ParsedFlags:
    """Values of ``arguments`` by the table ``flags``.

    ``removed``: hints for flags that no longer exist. Raises `FlagError`.
    """
    reader = _FlagParser(flags, removed)
    reader.read(list(arguments))
    if reader.problems:
        raise FlagError(reader.problems)
    return ParsedFlags(reader.values, tuple(reader.warnings))


class _FlagParser:
    """One pass over a command line."""

    def __init__(self, flags: Sequence[Flag], removed: Mapping[str, str]) -> None:
        self._flags = {flag.name: flag for flag in flags}
        self._short = {flag.short: flag for flag in flags if flag.short}
        self._removed = removed
        self.values: dict[str, Value] = {}
        self.warnings: list[str] = []
        self.problems: list[str] = []

    def read(self, arguments: list[str]) -> None:
        """Parse all arguments; those after ``--`` and those without a dash are positional (``cfg.args``)."""
        positional = []
        while arguments:
            argument = arguments.pop(0)
            if argument == "--":
                positional += arguments
                break
            if argument.startswith("--"):
                self._long(argument, arguments)
            elif argument.startswith("-") and argument != "-":
                self._shorthand(argument, arguments)
            else:
                positional.append(argument)
        self.problems += [
            f"{argument!r}: takes no arguments, only flags" for argument in positional if argument
        ]

    def _long(self, argument: str, rest: list[str]) -> None:
        name, equals, text = argument[2:].partition("=")
        name = name.replace("_", "-")
        flag = self._flags.get(name)
        if flag is None:
            self.problems.append(self._unknown(name))
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)  # most likely its value: no second error about it
        else:
            self._take(flag, text if equals else None, rest)

    def _shorthand(self, argument: str, rest: list[str]) -> None:
        flag = self._short.get(argument[1])
        if flag is None:
            self.problems.append(f"unknown flag: {argument[:2]}")
        else:
            self._take(flag, argument[2:].removeprefix("=") if len(argument) > 2 else None, rest)

    def _unknown(self, name: str) -> str:
        if name in self._removed:
            return f"--{name} is gone: {self._removed[name]}"
        near = difflib.get_close_matches(name, self._flags, 1)
        return f"unknown flag: --{name}" + (f"; did you mean --{near[0]}?" if near else "")

    def _take(self, flag: Flag, text: str | None, rest: list[str]) -> None:
        if text is None and flag.type in _ALONE:
            text = "true"
        elif text is None:
            if not rest:
                self.problems.append(f"--{flag.name} needs a value ({flag.type.value})")
                return
            text = rest.pop(0)
        try:
            self._set(flag, _READERS[flag.type](text))
        except ValueError as error:
            self.problems.append(f"--{flag.name}={text}: {error}")
            return
        if flag.deprecated:
            self.warnings.append(f"--{flag.name} is deprecated: {flag.deprecated}")

    def _set(self, flag: Flag, value: Value) -> None:
        """Store a value: lists and maps are extended by each occurrence, of anything else the last one counts."""
        known = self.values.get(flag.name)
        if isinstance(known, tuple) and isinstance(value, tuple):
            value = known + value
        elif isinstance(known, Mapping) and isinstance(value, Mapping):
            value = {**known, **value}
        self.values[flag.name] = value


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INT32 = range(-(2**31), 2**31)
_ALONE = frozenset({FlagType.BOOL, FlagType.VERSION})
"""Types that take a value only after ``=``."""


def parse_bool(text: str) -> bool:
    """Boolean in Go's syntax (https://pkg.go.dev/strconv#ParseBool); raises `ValueError`."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("must be true or false")


_OCTAL = re.compile("[+-]?0[0-7_]+")


def _integer(text: str) -> int:
    """Integer in Go's syntax: a leading zero makes it octal."""
    try:
        number = int(text, 8 if _OCTAL.fullmatch(text) else 0)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if number not in _INT32:
        raise ValueError("must fit in 32 bits")
    return number


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([text]), []))


def _pairs(text: str, what: str) -> list[tuple[str, str]]:
    found = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    if not all(name and equals for name, equals, _ in found):
        raise ValueError(f"must be {what} pairs with commas between")
    return [(name.strip(), value.strip()) for name, _, value in found]


def _gates(text: str) -> dict[str, bool]:
    return {name: parse_bool(value) for name, value in _pairs(text, "Gate=true")}


def _patterns(text: str) -> dict[str, int]:
    return {name: _integer(value) for name, value in _pairs(text, "pattern=N")}


def _version(text: str) -> str:
    return "" if text in _FALSE else text


_READERS: Mapping[FlagType, Callable[[str], Value]] = {
    FlagType.STRING: str,
    FlagType.BOOL: parse_bool,
    FlagType.INT: _integer,
    FlagType.FLOAT: _float,
    FlagType.DURATION: Duration.parse,
    FlagType.LIST: _list,
    FlagType.GATES: _gates,
    FlagType.PATTERNS: _patterns,
    FlagType.VERSION: _version,
}


def flag_usage(flags: Sequence[Flag]) -> str:
    """Usage text: all flags but deprecated ones, one per line."""
    shown = [
        (f"  -{f.short}, --{f.name}" if f.short else f"      --{f.name}", f)
        for f in flags
        if not f.deprecated
    ]
    heads = [(f"{head} {flag.type.value}".rstrip(), flag.help) for head, flag in shown]
    width = max(len(head) for head, _ in heads) + 2
    return "\n".join(f"{head:<{width}}{about}" for head, about in heads)
