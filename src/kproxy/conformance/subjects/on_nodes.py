"""A subject's programs on the nodes of `kproxy lab cluster`, with real values for the placeholders of its file.  Pure.

`kproxy.lab.cluster.node_programs` runs them; the lab's own topology is in `kproxy.conformance.testbeds.proxies`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.conformance.subjects.subject import (
    PLACEHOLDERS,
    InvalidSubject,
    Subject,
    check_mode,
    fill_placeholders,
    load_subject,
)
from kproxy.lab.cluster.node_programs import MakePrograms, NodePlace, NodeProgram, NodePrograms

HIDDEN = ("/run", "/var/run", "/var/lib", "/var/log")
"""Folders of the machine that a node has of its own (`kproxy.lab.cluster.node`)."""

_CONFIG = "config.yaml"


def subject_on_nodes(name_or_path: str, binary: str, mode: str) -> MakePrograms:
    """Programs of a subject for each node; an empty mode is the subject's first.

    Raises `InvalidSubject` for a file, a mode or a program that cannot be used.
    """
    subject = load_subject(name_or_path, binary)
    check_mode(subject, mode)
    if subject.binary:
        subject = replace(subject, binary=_program(subject.binary))
    chosen = mode or subject.modes[0]
    _check_placeholders(subject, name_or_path)

    def make(place: NodePlace) -> NodePrograms:
        return programs_on_node(subject, chosen, place)

    return make


def programs_on_node(subject: Subject, mode: str, place: NodePlace) -> NodePrograms:
    """Programs of a subject on a node, with all placeholders filled."""
    values = placeholder_values(subject, mode, place)

    def filled(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(fill_placeholders(text, values) for text in texts)

    configuration = NodeConfiguration(
        node=place.node,
        mode=mode,
        hostname=place.node,
        kubeconfig=str(place.kubeconfig),
        min_sync_period=subject.min_sync_period,
        cluster_cidrs=place.pod_ranges,
    )
    files = {name: fill_placeholders(text, values) for name, text in subject.files.items()}
    return NodePrograms(
        programs=tuple(
            NodeProgram(name=each.name, argv=filled(each.command), ready=filled(each.ready))
            for each in subject.all_processes
        ),
        environment={name: fill_placeholders(text, values) for name, text in subject.environment.items()},
        files={_CONFIG: kube_proxy_configuration(DEFAULT, configuration), **files},
        mounts={point: kind.value for point, kind in subject.mounts.items()},
    )


def placeholder_values(subject: Subject, mode: str, place: NodePlace) -> Mapping[str, str]:
    """Value of each of `PLACEHOLDERS`."""
    return {
        "binary": subject.binary,
        "python": sys.executable,
        "config": str(place.directory / _CONFIG),
        "kubeconfig": str(place.kubeconfig),
        "api_server": place.api_server,
        "mode": mode,
        "node": place.node,
        "node_name": place.node,
        "node_ip": place.address,
        "directory": str(place.directory),
    }


def _check_placeholders(subject: Subject, where: str) -> None:
    """Refuse ``{binary}`` where none is given; the loader knows of commands alone."""
    texts = {
        "environment": subject.environment.values(),
        "files": subject.files.values(),
    }
    for key, values in texts.items():
        if not subject.binary and any("{binary}" in text for text in values):
            raise InvalidSubject(
                f"{where}: [{key}] {{binary}} is {PLACEHOLDERS['binary']}, and none is given"
            )


def _program(path: str, exists: Callable[[Path], bool] = Path.is_file) -> str:
    program = Path(path).resolve()
    if not exists(program):
        raise InvalidSubject(f"--binary {path}: there is no such file")
    if hidden := next((folder for folder in HIDDEN if program.is_relative_to(folder)), None):
        raise InvalidSubject(
            f"--binary {path}: nodes have a {hidden} of their own: put the program elsewhere"
        )
    return str(program)
