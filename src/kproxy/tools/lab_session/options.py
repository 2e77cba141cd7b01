"""Options of a replica as values: the dump, the nodes, the proxy's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kproxy.conformance.case import Profile
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbeds import environment
from kproxy.model.network import Family
from kproxy.spec.node import PRIMARY
from kproxy.tools.explain.command import read_dump
from kproxy.tools.explain.dump import CannotExplain, Dump
from kproxy.tools.explain.explanation import ProxySettings, parse_networks
from kproxy.tools.lab_session.lab import ProxySetup
from kproxy.tools.lab_session.layout import CannotCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOptions:
    """Dump, and configuration of that cluster's proxies, as in `kproxy spec explain`."""

    files: Sequence[str]
    nodes: Sequence[str] = ()
    cluster_cidr: str = ""
    node_port_addresses: str = ""
    masquerade_all: bool = False
    iptables: str = "auto"
    sync_timeout: float = 0.0


def require_tools() -> None:
    """Raise `CannotCopy` with the fix when this machine lacks something."""
    if problems := environment.missing_prerequisites():
        raise CannotCopy("; ".join(problems))


def load_dump(cluster: ReplicaOptions) -> Dump:
    """Read the dump.  Raises `CannotCopy`."""
    try:
        return read_dump(cluster.files)
    except CannotExplain as reason:
        raise CannotCopy(str(reason)) from reason


def oracle_settings(cluster: ReplicaOptions) -> ProxySettings:
    """Configuration for the oracle, of no mode in particular. Raises `CannotCopy`."""
    ranges = cluster.node_port_addresses
    try:
        return ProxySettings(
            cluster_cidrs=parse_networks(cluster.cluster_cidr, "--cluster-cidr"),
            masquerade_all=cluster.masquerade_all,
            node_port_addresses=PRIMARY
            if ranges == "primary"
            else parse_networks(ranges, "--node-port-addresses"),
        )
    except CannotExplain as reason:
        raise CannotCopy(str(reason)) from reason


def proxy_setup(cluster: ReplicaOptions, subject: Subject, mode: str) -> ProxySetup:
    """Setup of the nodes' proxies. Pods are detected by the Nodes' pod ranges, or by --cluster-cidr."""
    ranges = tuple(filter(None, cluster.cluster_cidr.split(",")))
    addresses = tuple(filter(None, cluster.node_port_addresses.split(",")))
    return ProxySetup(
        subject=subject,
        mode=mode,
        variant=environment.iptables_variant(cluster.iptables),
        profile=Profile(
            name="replica",
            detect_mode="ClusterCIDR" if ranges else "NodeCIDR",
            detect_families=tuple(Family),
            masquerade_all=cluster.masquerade_all,
            node_port_addresses=addresses,
        ),
        cluster_cidrs=ranges,
        sync_timeout=cluster.sync_timeout,
    )


def resolve_subject(text: str, binary: str) -> tuple[Subject, str]:
    """Subject and mode of ``NAME:MODE``, ``FILE.toml:MODE``, or either without a mode, which means its first one.

    Raises `CannotCopy` and `kproxy.conformance.subjects.subject.InvalidSubject`.
    """
    name, _, mode = text.rpartition(":") if ":" in text else (text, "", "")
    subject = load_subject(name, binary)
    if mode and mode not in subject.modes:
        raise CannotCopy(f"{text}: {subject.name} has the modes {', '.join(subject.modes)}")
    problem = environment.missing_program(subject)
    if problem:
        raise CannotCopy(problem)
    return subject, mode or subject.modes[0]
