"""The shell: what it visits, and what it prints."""

from __future__ import annotations

from kproxy.universes.recording import Failed, Line, Recording, StateRead
from kproxy.universes.shell import shell_outputs


def read(text: str) -> StateRead:
    return StateRead(at=1, namespace="a", command="it", text=text)


def outputs(*commands: str, lines: tuple[Line, ...] | None = (read("rules"), read("its own"))) -> list[str]:
    visited: list[str] = []

    def visit(command: str) -> Recording | None:
        visited.append(command)
        return None if lines is None else Recording(lines)

    return [*shell_outputs(commands, visit), *visited]


def test_each_command_is_a_visit_of_its_own_until_an_empty_line() -> None:
    assert outputs("a ip route\n", " b nft list ruleset", "", "a never") == [
        "its own",
        "its own",
        "a ip route",
        "b nft list ruleset",
    ]


def test_what_is_no_command_is_refused_before_a_visit() -> None:
    (refused,) = outputs("route")
    assert "give a namespace and a command" in refused


def test_a_universe_that_breaks_or_fails_is_reported() -> None:
    assert outputs("a ip route", lines=None)[0] == "the universe broke\n"
    assert outputs("a ip route", lines=(Failed(at=1, subject=True, text="it ended"),))[0] == "it ended\n"
    assert outputs("a ip route", lines=())[0] == "the universe ended before the moment\n"
