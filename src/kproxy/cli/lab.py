"""Words of ``kproxy lab``: what the lab can run on."""

from __future__ import annotations

import argparse

from kproxy.cli.words import Commands


def add(commands: Commands) -> None:
    """The words of every action."""
    lab = commands.add_parser("lab", help="what the lab can run on, and how to have more")
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


def _doctor(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.doctor(options.uml_kernel)


def _kernel_build(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.build_kernel(options.source, options.jobs)


def _kernel_fetch(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.fetch_kernel(options.package)
