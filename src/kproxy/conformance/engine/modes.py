"""Runs of one command that judges a subject in every mode, and their names. Pure."""

from __future__ import annotations

from dataclasses import replace

from kproxy.conformance.options import RunOptions
from kproxy.conformance.subjects.subject import Subject

IPTABLES = "iptables"
VARIANTS = ("nft", "legacy")
"""Variants of iptables, each with its own programs and kernel modules: a proxy can be right with one of them only."""


def runs_by_mode(options: RunOptions, subject: Subject) -> tuple[RunOptions, ...]:
    """Run of the given mode; without one, of all the subject's modes, iptables mode with both variants of iptables."""
    if options.mode:
        return (options,)
    return tuple(
        replace(options, mode=mode, iptables=variant)
        for mode in subject.modes
        for variant in _variants(options, mode)
    )


def as_child_run(options: RunOptions) -> RunOptions:
    """Options of one run of several: evidence goes to a folder of its own, its report to the parent process."""
    return replace(options.without_outputs(), evidence=options.evidence / run_folder(options))


def _variants(options: RunOptions, mode: str) -> tuple[str, ...]:
    several = mode == IPTABLES and options.iptables == "auto" and options.testbed != "simulator"
    return VARIANTS if several else (options.iptables,)


def run_name(options: RunOptions) -> str:
    """Name of a run: the mode, with the variant of iptables where that distinguishes two runs."""
    return f"{options.mode} {options.iptables}" if _is_variant(options) else options.mode


def run_folder(options: RunOptions) -> str:
    """Name of a run's folder."""
    return run_name(options).replace(" ", "-")


def _is_variant(options: RunOptions) -> bool:
    return options.mode == IPTABLES and options.iptables in VARIANTS
