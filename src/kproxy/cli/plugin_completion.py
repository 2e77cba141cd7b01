"""Completion of ``kubectl kproxy``: the program ``kubectl_complete-kproxy``, which kubectl runs where a user presses Tab.

Its arguments are those after ``kubectl kproxy``, the last one unfinished.  It prints a candidate a line, each with its
description after a tab, then a line with a colon and cobra's directive.  Commands, options and values are the parser's.

https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/#custom-completions-for-kubectl-plugins
https://github.com/spf13/cobra/blob/main/completions.go (``ShellCompDirective``)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kproxy.cli import build_parser
from kproxy.cli.kubectl import COMMANDS, OPTIONS_OF_KUBECTL
from kproxy.cli.output import run_until_closed
from kproxy.cli.parser import subparsers

FILES, NO_FILES, FOLDERS = 0, 4, 16
"""Cobra's directives: the shell's own completion of files, none of files, folders only."""

_UP = "up"
_LIVE = {"explain", "compare", "trace", _UP}
"""Commands that read the cluster themselves, in the place of files (``-f``)."""
_LIVE_LAB = ("up", "exec", "kubectl", "down")
_NODE_OF_TRACE = argparse.Action(["--node"], "node", help="the node whose rules are read", metavar="NAME")


@dataclass(slots=True)
class _Place:
    """Where an unfinished command line is: at a command, after some of its tokens."""

    name: str
    parser: argparse.ArgumentParser | None
    below: Mapping[str, argparse.ArgumentParser]
    awaited: argparse.Action | None = None
    """Option whose value comes next."""
    options: dict[str, argparse.Action] = field(default_factory=dict)


def complete(arguments: Sequence[str] | None = None) -> int:
    """Print candidates and the directive; returns the exit status, 0."""
    tokens = list(sys.argv[1:] if arguments is None else arguments) or [""]
    return run_until_closed(lambda: _print(*candidates(tokens)), 0)


def _print(found: Sequence[tuple[str, str]], directive: int) -> int:
    for value, about in found:
        sys.stdout.write(f"{value}\t{about}\n" if about else f"{value}\n")
    sys.stdout.write(f":{directive}\n")
    return 0


def candidates(tokens: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """Values for the last token, each with a description, and cobra's directive."""
    *typed, last = tokens
    place = _start()
    if "--" in typed:
        return [], FILES
    for token in typed:
        place = _after(place, token)
    name, equals, _ = last.partition("=")
    if equals and name in place.options:
        found = [(f"{name}={value}", "") for value in place.options[name].choices or ()]
        directive = _directive(place.options[name])
    elif place.awaited is not None:
        found = [(str(value), "") for value in place.awaited.choices or ()]
        directive = _directive(place.awaited)
    elif last.startswith("-"):
        found = [(option, _about(action)) for option, action in place.options.items()]
        directive = NO_FILES
    else:
        found = [
            (command, (parser.description or "").partition(". ")[0])
            for command, parser in place.below.items()
        ]
        directive = NO_FILES
    return [(value, about) for value, about in found if value.startswith(last)], directive


def _start() -> _Place:
    """The commands of the plugin, and options of kubectl."""
    root, below = build_parser(), {}
    for name, path in COMMANDS.items():
        parser: argparse.ArgumentParser = root
        for part in path:
            parser = subparsers(parser)[part]
        below[name] = parser
    return _Place("", None, below, options=dict(_options_of_kubectl()))


def _options_of_kubectl() -> Iterator[tuple[str, argparse.Action]]:
    for name in OPTIONS_OF_KUBECTL:
        metavar = "FILE" if name == "--kubeconfig" else "NAME"
        yield name, argparse.Action([name], name, help="of kubectl", metavar=metavar)


def _after(place: _Place, token: str) -> _Place:
    """The place after one more token."""
    if place.awaited is not None:
        place.awaited = None
    elif token.startswith("-"):
        action = place.options.get(token)
        place.awaited = action if action is not None and action.nargs != 0 else None
    elif token in place.below:
        return _command(token, place.below[token], place)
    return place


def _command(name: str, parser: argparse.ArgumentParser, before: _Place) -> _Place:
    below = subparsers(parser)
    if name == "lab":
        below = {command: below[command] for command in _LIVE_LAB}
    options = {
        option: action
        for action in parser._actions
        if action.help != argparse.SUPPRESS and not (name in _LIVE and "--file" in action.option_strings)
        for option in action.option_strings
        if option.startswith("--")
    }
    of_kubectl = {option: before.options[option] for option in OPTIONS_OF_KUBECTL}
    of_trace = {"--node": _NODE_OF_TRACE} if name == "trace" else {}
    return _Place(name, parser, below, options={**options, **of_trace, **of_kubectl})


def _about(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _directive(action: argparse.Action) -> int:
    """Directive for the value of an option."""
    metavar = str(action.metavar or "")
    if metavar == "DIR":
        return FOLDERS
    return FILES if any(part in metavar for part in ("FILE", "PATH")) else NO_FILES


if __name__ == "__main__":
    sys.exit(complete())
