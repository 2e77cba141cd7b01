"""Parser of the command line: argparse's, with a guess at what was meant by a word that it does not know.

A command reports its own unknown options, with its own usage; argparse would report them in the name of ``kproxy``.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from kproxy.options.commands import REPLACED


class Parser(argparse.ArgumentParser):
    """Parser of a command, or of those below it."""

    def parse_known_args(  # type: ignore[override] # argparse's overloads are about types of namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; an argument that is left over ends the program here, where the options of the command are known."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unknown argument {rest[0]}{self._suggestion(rest[0])}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print the message, and where help is; exit with 2."""
        listed = "commands" if subparsers(self) else "options"
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` lists the {listed}\n")

    def _suggestion(self, word: str) -> str:
        name = word.partition("=")[0]
        if name in REPLACED:
            return f"; type {REPLACED[name]}"
        return did_you_mean(name, (option for option in self._option_string_actions if option != "--help"))

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a value that is none of the choices."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        is_command = isinstance(action, argparse._SubParsersAction)
        guess = self._nearest_command(str(value)) if is_command else did_you_mean(str(value), known)
        text = (
            f"unknown {'command' if is_command else 'value'} {value}{guess or '; known: ' + ', '.join(known)}"
        )
        if is_command:
            self.error(text)
        raise argparse.ArgumentError(action, text)

    def _nearest_command(self, name: str) -> str:
        """The command that is meant: one further down that has just this name, else the nearest here, else further down."""
        below: dict[str, list[str]] = {}
        for path in _commands_below(self):
            below.setdefault(path.rpartition(" ")[2], []).append(f"`{path}`")
        if name not in below and (guess := did_you_mean(name, subparsers(self))):
            return guess
        nearest = difflib.get_close_matches(name, below, 1)
        return f"; did you mean {' or '.join(below[nearest[0]])}?" if nearest else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that is nearest, as a question; empty if none is near."""
    found = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def _commands_below(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Whole command lines of the commands that have none below them, but not of the parser's own."""
    for direct in subparsers(parser).values():
        for command in subparsers(direct).values():
            if not subparsers(command):
                yield command.prog
        yield from _commands_below(direct)


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands below a command, by name; empty if it has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
