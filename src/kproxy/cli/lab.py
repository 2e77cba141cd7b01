"""``kproxy lab``: the kernels that labs can run on, and a lab of your own cluster."""

from __future__ import annotations

import argparse
import sys

from kproxy.cli.arguments import Commands, add_command, add_commands, build_options, cluster_options
from kproxy.options.option import OptionUser
from kproxy.options.table import with_new_names


def add_lab_command(commands: Commands) -> None:
    """Add the command, its actions and their options."""
    actions = add_commands(commands, "lab")
    add_command(actions, OptionUser.LAB_DOCTOR, _doctor)
    kernels = add_commands(actions, "lab kernel")
    add_command(kernels, OptionUser.LAB_KERNEL_BUILD, _kernel_build)
    add_command(kernels, OptionUser.LAB_KERNEL_FETCH, _kernel_fetch)
    add_command(actions, OptionUser.LAB_UP, _up)
    add_command(actions, OptionUser.LAB_EXEC, _exec)
    add_command(actions, OptionUser.LAB_KUBECTL, _kubectl)
    add_command(actions, OptionUser.LAB_DOWN, _down)
    inside = add_commands(actions, "lab cluster")
    add_command(inside, OptionUser.LAB_CLUSTER_UP, _cluster_up)
    add_command(inside, OptionUser.LAB_CLUSTER_FETCH, _cluster_fetch)
    add_command(inside, OptionUser.LAB_CLUSTER_EXEC, _cluster_exec)
    add_command(inside, OptionUser.LAB_CLUSTER_KUBECTL, _cluster_kubectl)
    add_command(inside, OptionUser.LAB_CLUSTER_KUBECONFIG, _cluster_kubeconfig)
    add_command(inside, OptionUser.LAB_CLUSTER_DOWN, _cluster_down)


def _doctor(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.run_doctor(options.uml_kernel, options.form)


def _kernel_build(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.build_kernel(options.source, options.jobs, options.form)


def _kernel_fetch(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.fetch_kernel(options.package, options.form)


def _up(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import lab_up

    return lab_up.run_lab_up(
        lab_up.UpOptions(
            proxy=f"{options.proxy}:{options.mode}" if options.mode else options.proxy,
            binary=options.binary,
            cluster=cluster_options(options),
            name=options.name,
            kernel=options.kernel,
            form=options.form,
            arguments=with_new_names(sys.argv[1:]),
        )
    )


def _exec(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import client

    return client.run_in_lab(options.name, options.where, _program(options))


def _program(options: argparse.Namespace) -> list[str]:
    return _rest(options) or ["sh"]


def _rest(options: argparse.Namespace) -> list[str]:
    """Arguments for another program, without the dashes that set them apart."""
    argv: list[str] = options.arguments
    return argv[1:] if argv[:1] == ["--"] else argv


def _kubectl(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import client

    return client.run_kubectl(options.name, options.arguments)


def _down(options: argparse.Namespace) -> int:
    from kproxy.tools.lab_session import client

    return client.stop_lab(options.name)


def _cluster_up(options: argparse.Namespace) -> int:
    from kproxy.conformance.subjects.on_nodes import subject_on_nodes
    from kproxy.conformance.subjects.subject import InvalidSubject
    from kproxy.lab.cluster import command
    from kproxy.lab.cluster.service_proxy import ProxyName

    programs = None
    if options.proxy not in {proxy.value for proxy in ProxyName}:
        try:
            programs = subject_on_nodes(options.proxy, options.binary or "", options.mode)
        except InvalidSubject as reason:
            return command.cannot("up", reason)
    elif options.binary:
        text = f"--binary {options.binary}: {options.proxy} runs from its image; a subject file has a program"
        return command.cannot("up", InvalidSubject(text))
    deploy = options.deploy or command.DEPLOY
    return command.run_up(build_options(command.ClusterUpOptions, options, deploy=deploy, programs=programs))


def _cluster_fetch(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import fetch

    return fetch.run_fetch(options.assets, options.version, options.url, options.form)


def _cluster_exec(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.run_in_place(options.name, options.where, _program(options))


def _cluster_kubectl(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.run_as_administrator(options.name, _rest(options))


def _cluster_kubeconfig(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.print_kubeconfig(options.name, options.form)


def _cluster_down(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.run_down(options.name)
