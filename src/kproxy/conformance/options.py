"""Options of ``kproxy conformance run`` as a value, and back as a command.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from kproxy.conformance.reports.outputs import Outputs
from kproxy.options.option import OptionUser
from kproxy.options.table import options_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Cases to run, the subject, its lab, and where results go: a field for each option that the table has for ``run``.

    Defaults are those of the table but for two, which the command line leaves open: ``mode`` (empty: each of the
    subject's, in a run of its own) and ``kernel`` (``auto``).  ``sync_timeout``: seconds, 0 for as many as suit the
    kernel.  ``memory``: in MiB.  ``guests``: 0 for as many as help.
    """

    proxy: str = "kproxy"
    binary: str = ""
    mode: str = "iptables"
    testbed: str = "netns"
    kernel: str = "host"
    time: str = "real"
    uml_kernel: str = ""
    memory: int = 1024
    guests: int = 0
    iptables: str = "auto"
    apiserver: str = "lab"
    globs: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    last_failed: bool = False
    maxfail: int = 0
    case_files: tuple[str, ...] = ()
    slow: bool = False
    shuffle: int | None = None
    parallel: int = 4
    sync_timeout: float = 0.0
    json: str = ""
    yaml: str = ""
    junit: str = ""
    markdown: str = ""
    html: str = ""
    evidence: Path = Path("evidence")
    xfails: str = ""
    dry_run: bool = False
    skip_missing_kernels: bool = False
    print_missing_packages: bool = False

    @property
    def outputs(self) -> Outputs:
        """Where results are written."""
        return Outputs(**{form.name: getattr(self, form.name) for form in fields(Outputs)})

    def without_outputs(self) -> RunOptions:
        """The same for a child process, which sends its results to this one."""
        return replace(self, json="", yaml="", junit="", markdown="", html="")


_DEFAULTS = RunOptions()
_ALWAYS = ("proxy", "mode")
_NAMES = {option.destination: option.name for option in options_of(OptionUser.RUN)}


def run_arguments(options: RunOptions) -> list[str]:
    """The command with these options; always with ``--kernel``, since its default there is ``auto``."""
    command = ["conformance", "run"]
    for name in [field.name for field in fields(options)]:
        value = getattr(options, name)
        if name in {*_ALWAYS, "kernel"} or value != getattr(_DEFAULTS, name):
            command += _flag_arguments(_NAMES[name], value)
    return command


def reproduce_command(options: RunOptions, environment: Mapping[str, str]) -> list[str]:
    """The command that judges the same subject on the same kernel, which it names, without the choice of cases.

    ``environment``: the report's, which names the kernel and the time that the run had.
    """
    names = (
        "proxy",
        "binary",
        "mode",
        "testbed",
        "iptables",
        "apiserver",
        "sync_timeout",
        "memory",
        "case_files",
        "uml_kernel",
    )
    same = RunOptions(**{name: getattr(options, name) for name in names})
    kernel, time = environment.get("kernel-choice", "host"), environment.get("time", "real")
    return ["kproxy", *run_arguments(replace(same, kernel=kernel, time=time))]


def _flag_arguments(flag: str, value: object) -> list[str]:
    match value:
        case True:
            return [flag]
        case tuple():
            return [token for item in value for token in (flag, str(item))]
        case float():
            return [flag, f"{value:g}"]
        case _:
            return [flag, str(value)]
