"""Words of ``kproxy lab``: what the lab can run on, and a lab of your own cluster."""

from __future__ import annotations

import argparse
import sys

from kproxy.cli.arguments import Commands, add_cluster_options, add_kernel_option, cluster_options
from kproxy.tools.lab_session.control_socket import DEFAULT_NAME


def add_lab_command(commands: Commands) -> None:
    """The words of every action."""
    lab = commands.add_parser("lab", help="a lab of your own cluster, and what labs can run on")
    actions = lab.add_subparsers(required=True, metavar="ACTION")
    doctor = actions.add_parser("doctor", help="what each kernel can do here, and what to do about the rest")
    doctor.add_argument(
        "--uml-kernel", default="", metavar="PATH", help="a User-Mode Linux kernel to look at"
    )
    doctor.set_defaults(command=_doctor)
    kernel = actions.add_parser("kernel", help="more kernels for the lab")
    kernels = kernel.add_subparsers(required=True, metavar="ACTION")
    build = kernels.add_parser(
        "build", help="User-Mode Linux: fetch Debian's source, build, test, keep (10 minutes of CPU)"
    )
    build.add_argument(
        "--source", default="", metavar="PACKAGE", help="default: the newest linux-source-X.Y of apt"
    )
    build.add_argument("--jobs", type=int, default=0, metavar="N", help="default: as many as processors")
    build.set_defaults(command=_kernel_build)
    fetch = kernels.add_parser(
        "fetch", help="get Debian's kernel for virtual machines, without installing it"
    )
    fetch.add_argument(
        "--package", default="", metavar="PACKAGE", help="default: the one of linux-image-amd64"
    )
    fetch.set_defaults(command=_kernel_fetch)
    _add_up(actions.add_parser("up", help="build your cluster from a dump, and keep it until Ctrl-C"))
    _add_client_commands(actions)


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--proxy",
        default="kproxy",
        metavar="NAME[:MODE]|FILE.toml[:MODE]",
        help="what the nodes run (default: %(default)s, in its first mode)",
    )
    up.add_argument("--binary", default="", metavar="PATH", help="the proxy's program")
    up.add_argument("--mode", default="", help="one of the proxy's modes")
    add_cluster_options(up)
    add_kernel_option(up, ("host", "rootless"))
    _add_name(up)
    up.set_defaults(command=_up)


def _add_client_commands(actions: Commands) -> None:
    execute = actions.add_parser("exec", help="run a program in a running lab: in a pod, a node or a client")
    execute.add_argument(
        "where", metavar="WHERE", help="pod/NAME, pod/NAMESPACE/NAME, node/NAME, client or remote"
    )
    execute.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGUMENT", help="what to run"
    )
    _add_name(execute)
    execute.set_defaults(command=_exec)
    kubectl = actions.add_parser("kubectl", help="run kubectl against a running lab's API server")
    _add_name(kubectl)
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="as for kubectl")
    kubectl.set_defaults(command=_kubectl)
    down = actions.add_parser("down", help="end a running lab")
    _add_name(down)
    down.set_defaults(command=_down)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default=DEFAULT_NAME, help="which lab, if there are several")


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
            arguments=tuple(sys.argv[1:]),
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
