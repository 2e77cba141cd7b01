"""Completion of shells and the page of ``man``, made of the parser of the command line: in the package, and in ``docs/man``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import shtab

from kproxy import __version__
from kproxy.cli import build_parser
from kproxy.cli.parser import Parser, subparsers
from kproxy.proxy.daemon.config.flag_table import FLAGS
from kproxy.proxy.daemon.config.flags import FlagType

ROOT = Path(__file__).parents[2]
SHELLS = ROOT / "src/kproxy/cli/shells"
MAN = ROOT / "docs/man/kproxy.1"


def documented_parser() -> Parser:
    """The parser of all commands with the daemon's flags, which the daemon parses itself."""
    root = build_parser()
    run = subparsers(root)["run"]
    for flag in FLAGS:
        names = [f"--{flag.name}", *([f"-{flag.short}"] if flag.short else [])]
        if flag.name != "help":
            help_text = flag.help.replace("%", "%%")
            if flag.type is FlagType.BOOL:
                run.add_argument(*names, help=help_text, action="store_true")
            else:
                run.add_argument(*names, help=help_text, metavar=flag.type.name)
    return root


_CASES = "kproxy conformance list 2>/dev/null | awk '$1 ~ /\\./ {print $1}'"
"""Command line that prints the IDs of cases, a line each."""
_TOPICS = "kproxy spec show 2>/dev/null | awk '{print $1}'"
_CLAUSES = 'kproxy spec show "${%s%%%%.*}" 2>/dev/null | awk \'$2 ~ /^(MUST|SHOULD|MAY)$/ {sub(/:$/, "", $3); print $3}\''
"""Command line that prints the IDs of clauses, a line each, of the topic that the token in a variable begins with."""


def _ids(token: str) -> str:
    """What `kproxy spec show` knows and begins with the token: topics, or IDs of a topic's clauses and cases."""
    return f'case "${token}" in *.*) {_CLAUSES % token}; {_CASES} ;; *) {_TOPICS} ;; esac'


_OFFER = {
    "bash": '%s() {\n  compgen -W "$(%s)" -- "$1"\n}\n',
    "zsh": '%s() {\n  local -a found=(${(f)"$(%s)"})\n  compadd -a found\n}\n',
}
_TOKEN = {"bash": "1", "zsh": "PREFIX"}
"""Variable with the token that is completed."""
_FUNCTIONS = {
    shell: offer % ("_kproxy_cases", _CASES) + offer % ("_kproxy_ids", _ids(_TOKEN[shell]))
    for shell, offer in _OFFER.items()
}
"""Functions that complete the ID of a case, and of whatever has one."""


def completion(shell: str) -> str:
    """The script that completes kproxy's commands, options, and values that are files or one of a few."""
    root = documented_parser()
    for parser in _parsers(root):
        for action in parser._actions:
            if action.metavar and any(word in str(action.metavar) for word in ("FILE", "PATH")):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            if "--case" in action.option_strings or (action.dest, action.metavar) == ("case", "ID"):
                action.complete = dict.fromkeys(_FUNCTIONS, "_kproxy_cases")  # type: ignore[attr-defined]
            if (action.dest, action.metavar) == ("id", "ID"):
                action.complete = dict.fromkeys(_FUNCTIONS, "_kproxy_ids")  # type: ignore[attr-defined]
            if action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(root, shell=shell, preamble=_FUNCTIONS)  # type: ignore[arg-type] # its annotation is of a string only + "\n"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for below in subparsers(parser).values():
        yield from _parsers(below)


def man_page() -> str:
    """The page in roff: a section for each command, with its options in groups, examples and exit statuses."""
    about = "kproxy - Kubernetes service proxy, and conformance harness for any service proxy"
    parts = [f'.TH KPROXY 1 "" "kproxy {__version__}" "User Commands"', ".SH NAME", _roff(about)]
    for parser in _parsers(documented_parser()):
        parts += [f".SH {_roff(parser.prog)}", _roff(parser.description or "")]
        parts += [line for group in parser._action_groups for line in _group(group)]
        parts += [".PP", ".nf", _roff(parser.epilog), ".fi"] if parser.epilog else []
    return "\n".join(parts) + "\n"


def _group(group: argparse._ArgumentGroup) -> Iterator[str]:
    """Options under their heading; commands with what each is for."""
    shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
    if not shown:
        return
    yield f".SS {_roff(group.title or '')}"
    for action in shown:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield from (".TP", f"\\fB{_roff(choice.dest)}\\fR", _roff(choice.help or ""))
            continue
        yield from (".TP", f"\\fB{_roff(_usage(action))}\\fR", _roff((action.help or "").replace("%%", "%")))


def _usage(action: argparse.Action) -> str:
    value = str(action.metavar or "|".join(map(str, action.choices or ())))
    return f"{', '.join(action.option_strings)} {value if action.nargs != 0 else ''}".strip()


def _roff(text: str) -> str:
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


PAGES: dict[Path, Callable[[], str]] = {
    **{SHELLS / f"kproxy.{shell}": partial(completion, shell) for shell in ("bash", "zsh", "tcsh")},
    MAN: man_page,
}
"""The files, each with the function that returns its text."""
