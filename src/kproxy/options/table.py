"""The table of options, whole, and what is looked up in it.  Pure.

Options of the daemon (``kproxy run``) are not here: they are kube-proxy's, in kube-proxy's form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kproxy.options.conformance import CONFORMANCE_OPTIONS
from kproxy.options.option import CommandOption, Front
from kproxy.options.simulate import SIMULATE_OPTIONS
from kproxy.options.tools import TOOL_OPTIONS

OPTIONS: tuple[CommandOption, ...] = (*TOOL_OPTIONS, *SIMULATE_OPTIONS, *CONFORMANCE_OPTIONS)
"""Every option of every command."""

NEW_NAMES: Mapping[str, str] = {option.old_name: option.name for option in OPTIONS if option.old_name}
"""Today's name of each option that was renamed; the old names go with the next release."""


def options_of(front: Front) -> tuple[CommandOption, ...]:
    """The options of a command, in the order of its ``--help``."""
    return tuple(option for option in OPTIONS if front in option.fronts)


def with_new_names(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments of a command with today's names of options, to be given to another process."""
    parts = (argument.partition("=") for argument in arguments)
    return tuple(NEW_NAMES.get(name, name) + equals + value for name, equals, value in parts)
