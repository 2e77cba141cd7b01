"""Selection of the catalogue's cases that run in containers.  Pure: the documentation uses it too."""

from __future__ import annotations

import fnmatch

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE

GROUPS = (
    *("cluster-ip", "node-port", "load-balancer", "source-ranges", "internal-policy", "external-policy"),
    *("terminating", "masquerade", "conntrack", "no-endpoints", "restart"),
)
"""Groups of cases that cover all objects that a proxy writes to the kernel, removes, and finds at its start."""
PROFILES = ("default", "restart")
GLOBS = (*(f"{group}.*" for group in GROUPS), "affinity.[!t]*", "affinity.t[!i]*")
"""Those groups, and affinity but for its `time-` cases: eight seconds can be over between two connections of a container beside other tests."""


def selected(globs: tuple[str, ...] = GLOBS, profiles: tuple[str, ...] = PROFILES) -> list[Case]:
    """The cases of these profiles that a glob fits, without those that wait for real time."""
    return [
        case
        for case in CATALOGUE
        if case.profile.name in profiles
        and not case.slow
        and any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)
    ]
