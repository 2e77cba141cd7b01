"""Console for tables and messages: `rich`'s, but a closed pipe (``| head``) ends the command without an error.

Used by every command that prints tables; `kproxy.cli.output` turns the `BrokenPipeError` into an exit status.
"""

from __future__ import annotations

from typing import NoReturn

import rich.console


class Console(rich.console.Console):
    """Raises `BrokenPipeError` where rich would exit with 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Called by rich while it handles a `BrokenPipeError`."""
        self.quiet = True
        raise BrokenPipeError
