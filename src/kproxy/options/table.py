"""The table of options, whole, and what is looked up in it.  Pure.

Options of the daemon (``kproxy run``) are not here: they are kube-proxy's, in kube-proxy's form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kproxy.options.conformance import CONFORMANCE_GROUPS
from kproxy.options.option import CommandOption, OptionUser
from kproxy.options.output import OUTPUT_GROUPS
from kproxy.options.simulate import SIMULATE_GROUPS
from kproxy.options.tools import TOOL_GROUPS

OPTION_GROUPS: tuple[tuple[str, Sequence[CommandOption]], ...] = tuple(
    group
    for groups in (TOOL_GROUPS, SIMULATE_GROUPS, CONFORMANCE_GROUPS, OUTPUT_GROUPS)
    for group in groups.items()
)
"""Every option of every command, in groups by their headings in ``--help``."""

OPTIONS: tuple[CommandOption, ...] = tuple(option for _, group in OPTION_GROUPS for option in group)
"""Every option of every command."""

NEW_NAMES: Mapping[str, str] = {option.old_name: option.name for option in OPTIONS if option.old_name}
"""Today's name of each option that was renamed; the old names go with the next release."""


def options_of(user: OptionUser) -> tuple[CommandOption, ...]:
    """The options of a command, in the order of its ``--help``."""
    return tuple(option for option in OPTIONS if user in option.users)


def option_groups_of(user: OptionUser) -> tuple[tuple[str, tuple[CommandOption, ...]], ...]:
    """The options of a command in groups, each with its heading."""
    groups = ((title, tuple(o for o in group if user in o.users)) for title, group in OPTION_GROUPS)
    return tuple((title, group) for title, group in groups if group)


def with_new_names(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments of a command with today's names of options, to be given to another process."""
    parts = (argument.partition("=") for argument in arguments)
    return tuple(NEW_NAMES.get(name, name) + equals + value for name, equals, value in parts)
