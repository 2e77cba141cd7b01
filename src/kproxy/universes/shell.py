"""Shell at a moment of a universe: each command is another run of that universe, up to the moment, with the command at its end.

Nothing is kept waiting inside: a universe repeats itself, so the moment can be visited as often as one likes, and a command
that changes something changes it for itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kproxy.universes.recording import Recording, StateRead

PROMPT = "namespace command (a ip route), or an empty line to leave> "


def shell_outputs(commands: Iterable[str], visit: Callable[[str], Recording | None]) -> Iterator[str]:
    """Outputs of commands, each ``NAMESPACE COMMAND``, until an empty one.

    ``visit``: plays the universe up to the moment with a command at its end; None where it broke.
    """
    for command in map(str.strip, commands):
        if not command:
            return
        if len(command.split()) == 1:
            yield f"{command}: give a namespace and a command, such as: a nft list ruleset\n"
            continue
        recording = visit(command)
        yield "the universe broke\n" if recording is None else _output(recording)


def _output(recording: Recording) -> str:
    """Output of the last command of a recording."""
    if recording.failure:
        return f"{recording.failure.text}\n"
    reads: list[StateRead] = list(recording.states())
    return reads[-1].text if reads else "the universe ended before the moment\n"
