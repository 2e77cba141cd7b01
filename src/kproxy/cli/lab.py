"""``kproxy lab``: the kernels that labs can run on, and a lab of your own cluster."""

from __future__ import annotations

import argparse
import sys

from kproxy.cli.arguments import Commands, add_command, build_options, cluster_options
from kproxy.options.option import Front
from kproxy.options.table import with_new_names


def add_lab_command(commands: Commands) -> None:
    """Add the command, its actions and their options."""
    lab = commands.add_parser("lab", help="a lab of your own cluster, and the kernels that labs can run on")
    actions = lab.add_subparsers(required=True, metavar="ACTION")
    about = "what each kernel can do here, and how to get what is missing"
    add_command(actions, "doctor", Front.LAB_DOCTOR, about, _doctor)
    kernel = actions.add_parser("kernel", help="more kernels for the lab")
    kernels = kernel.add_subparsers(required=True, metavar="ACTION")
    about = "User-Mode Linux: fetch Debian's source, build, test, keep (10 minutes of CPU)"
    add_command(kernels, "build", Front.LAB_KERNEL_BUILD, about, _kernel_build)
    about = "get Debian's kernel for virtual machines, without installing it"
    add_command(kernels, "fetch", Front.LAB_KERNEL_FETCH, about, _kernel_fetch)
    about = "build your cluster from a dump, and keep it until Ctrl-C"
    add_command(actions, "up", Front.LAB_UP, about, _up)
    about = "run a program in a running lab: in a pod, a node or a client"
    add_command(actions, "exec", Front.LAB_EXEC, about, _exec)
    about = "run kubectl against a running lab's API server"
    add_command(actions, "kubectl", Front.LAB_KUBECTL, about, _kubectl)
    add_command(actions, "down", Front.LAB_DOWN, "end a running lab", _down)
    _add_cluster(actions)


def _add_cluster(actions: Commands) -> None:
    cluster = actions.add_parser("cluster", help="a cluster of real kubelets on this machine")
    inside = cluster.add_subparsers(required=True, metavar="ACTION")
    about = "start a cluster, and keep it until Ctrl-C"
    add_command(inside, "up", Front.LAB_CLUSTER_UP, about, _cluster_up)
    about = "get Kubernetes' programs from the release site, with their checksums verified"
    add_command(inside, "fetch", Front.LAB_CLUSTER_FETCH, about, _cluster_fetch)
    about = "run a program on a node, or on a client outside"
    add_command(inside, "exec", Front.LAB_CLUSTER_EXEC, about, _cluster_exec)
    about = "run kubectl as the cluster's administrator"
    add_command(inside, "kubectl", Front.LAB_CLUSTER_KUBECTL, about, _cluster_kubectl)
    about = "print the path of the cluster's kubeconfig"
    add_command(inside, "kubeconfig", Front.LAB_CLUSTER_KUBECONFIG, about, _cluster_kubeconfig)
    add_command(inside, "down", Front.LAB_CLUSTER_DOWN, "end a running cluster", _cluster_down)


def _doctor(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.run_doctor(options.uml_kernel)


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
    from kproxy.lab.cluster import command

    deploy = options.deploy or command.DEPLOY
    return command.run_up(build_options(command.ClusterUpOptions, options, deploy=deploy))


def _cluster_fetch(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import fetch

    return fetch.run_fetch(options.assets, options.version, options.url)


def _cluster_exec(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.run_in_place(options.name, options.where, _program(options))


def _cluster_kubectl(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.run_as_administrator(options.name, _rest(options))


def _cluster_kubeconfig(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.print_kubeconfig(options.name)


def _cluster_down(options: argparse.Namespace) -> int:
    from kproxy.lab.cluster import command

    return command.run_down(options.name)
