"""One command that judges a subject in every mode: the runs it means, and their names.  Pure."""

from __future__ import annotations

from dataclasses import replace

from kproxy.conformance.options import RunOptions
from kproxy.conformance.subjects.subject import Subject

IPTABLES = "iptables"
VARIANTS = ("nft", "legacy")
"""Of iptables, each a program and a part of the kernel of its own: a proxy can be right with one of them only."""


def runs_by_mode(options: RunOptions, subject: Subject) -> tuple[RunOptions, ...]:
    """The mode that is asked for; if none is, all of the subject's, iptables mode with both variants of iptables."""
    if options.mode:
        return (options,)
    return tuple(
        replace(options, mode=mode, iptables=variant)
        for mode in subject.modes
        for variant in _variants(options, mode)
    )


def as_child_run(options: RunOptions) -> RunOptions:
    """One run of several: evidence goes to a folder of its own, results to who put the run to work."""
    return replace(options.without_outputs(), evidence=options.evidence / run_folder(options))


def _variants(options: RunOptions, mode: str) -> tuple[str, ...]:
    several = mode == IPTABLES and options.iptables == "auto" and options.testbed != "simulator"
    return VARIANTS if several else (options.iptables,)


def run_name(options: RunOptions) -> str:
    """The mode, with the variant of iptables where that tells two runs apart."""
    return f"{options.mode} {options.iptables}" if _is_variant(options) else options.mode


def run_folder(options: RunOptions) -> str:
    """The name as a file's."""
    return run_name(options).replace(" ", "-")


def _is_variant(options: RunOptions) -> bool:
    return options.mode == IPTABLES and options.iptables in VARIANTS
