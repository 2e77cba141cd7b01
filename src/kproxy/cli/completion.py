"""``kproxy completion``: the completion of a shell, which was made of the parser when the package was built.

``python -m tools.docgen`` makes the files with shtab, so that nobody needs it who runs kproxy.
"""

from __future__ import annotations

import argparse
import importlib.resources
import sys

from kproxy.cli.arguments import Commands, add_command
from kproxy.options.option import OptionUser


def add_completion_command(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, OptionUser.COMPLETION, _completion)


def _completion(options: argparse.Namespace) -> int:
    file = importlib.resources.files(__package__).joinpath("shells", f"kproxy.{options.shell}")
    sys.stdout.write(file.read_text("utf-8"))
    return 0
