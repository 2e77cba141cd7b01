"""The words of ``kproxy conformance run`` as a value, and back.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from kproxy.conformance.reports.outputs import Outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to run, on what, and where results go.

    ``mode``: empty for each of the subject's, one run after the other; ``where_possible``: those that no kernel
    can run may be left out then.  ``patience``: seconds, 0 for as many as suit the kernel.  ``memory``: of a
    guest, in MiB.  ``guests``: how many share the cases, 0 for as many as help.  ``lacking_packages``: only say
    which packages would give a kernel to a run that finds none.  ``xfails``: a file (`kproxy.conformance.subjects.expected_failures`).
    ``dryrun``: only say which cases would be run where.
    ``case_files``: cases that are in no catalogue, and then only these.
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
    case_files: tuple[str, ...] = ()
    slow: bool = False
    shuffle: int | None = None
    parallel: int = 2
    patience: float = 0.0
    json: str = ""
    junit: str = ""
    markdown: str = ""
    html: str = ""
    evidence: Path = Path("evidence")
    xfails: str = ""
    dryrun: bool = False
    where_possible: bool = False
    lacking_packages: bool = False

    @property
    def outputs(self) -> Outputs:
        """Where results are written."""
        return Outputs(**{form.name: getattr(self, form.name) for form in fields(Outputs)})

    def without_outputs(self) -> RunOptions:
        """The same, for a process that gives its results to this one."""
        return replace(self, json="", junit="", markdown="", html="")


_DEFAULTS = RunOptions()
_ALWAYS = ("proxy", "mode")
_FLAGS = {"globs": "--case", "case_files": "--case-file"}


def run_arguments(options: RunOptions) -> list[str]:
    """The command that means these options; ``--kernel`` is always said, for its default there is ``auto``."""
    command = ["conformance", "run"]
    for name in [field.name for field in fields(options)]:
        value = getattr(options, name)
        if name in {*_ALWAYS, "kernel"} or value != getattr(_DEFAULTS, name):
            command += _flag_arguments(_FLAGS.get(name, "--" + name.replace("_", "-")), value)
    return command


def reproduce_command(options: RunOptions, environment: Mapping[str, str]) -> list[str]:
    """The command that asks the same subject on the same kernel, without the choice of cases.

    ``environment``: the report's, where the kernel and the time that a run really had are noted.
    """
    names = (
        "proxy",
        "binary",
        "mode",
        "testbed",
        "iptables",
        "apiserver",
        "patience",
        "memory",
        "case_files",
    )
    same = RunOptions(**{name: getattr(options, name) for name in names})
    kernel, time = environment.get("kernel-choice", "host"), environment.get("time", "real")
    command = ["kproxy", *run_arguments(replace(same, kernel=kernel, time=time))]
    if kernel == "host":
        at = command.index("--kernel")
        del command[at : at + 2]
    return command


def _flag_arguments(flag: str, value: object) -> list[str]:
    match value:
        case True:
            return [flag]
        case tuple():
            return [word for item in value for word in (flag, str(item))]
        case float():
            return [flag, f"{value:g}"]
        case _:
            return [flag, str(value)]
