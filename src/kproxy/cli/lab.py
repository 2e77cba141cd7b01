"""``kproxy lab``: the kernels that labs can run on, and a lab of your own cluster."""

from __future__ import annotations

import argparse
import sys

from kproxy.cli.arguments import Commands, add_command, add_commands, cluster_options
from kproxy.options.option import Front
from kproxy.options.table import with_new_names


def add_lab_command(commands: Commands) -> None:
    """Add the command, its actions and their options."""
    actions = add_commands(commands, "lab")
    add_command(actions, Front.LAB_DOCTOR, _doctor)
    kernels = add_commands(actions, "lab kernel")
    add_command(kernels, Front.LAB_KERNEL_BUILD, _kernel_build)
    add_command(kernels, Front.LAB_KERNEL_FETCH, _kernel_fetch)
    add_command(actions, Front.LAB_UP, _up)
    add_command(actions, Front.LAB_EXEC, _exec)
    add_command(actions, Front.LAB_KUBECTL, _kubectl)
    add_command(actions, Front.LAB_DOWN, _down)


def _doctor(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.run_doctor(options.uml_kernel, options.form)


def _kernel_build(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.build_kernel(options.source, options.jobs)


def _kernel_fetch(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.fetch_kernel(options.package)


def _up(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import lab_up

    return lab_up.run_lab_up(
        lab_up.UpOptions(
            proxy=f"{options.proxy}:{options.mode}" if options.mode else options.proxy,
            binary=options.binary,
            cluster=cluster_options(options),
            name=options.name,
            kernel=options.kernel,
            arguments=with_new_names(sys.argv[1:]),
        )
    )


def _exec(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import client

    argv = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    return client.run_in_lab(options.name, options.where, argv or ["sh"])


def _kubectl(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import client

    return client.run_kubectl(options.name, options.arguments)


def _down(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import client

    return client.stop_lab(options.name)
