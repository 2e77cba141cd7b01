"""Which cases of the catalogue are run in containers.  Pure: the documents say it too."""

from __future__ import annotations

import fnmatch

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE

GROUPS = (
    *("cluster-ip", "node-port", "load-balancer", "source-ranges", "internal-policy", "external-policy"),
    *("terminating", "masquerade", "affinity", "conntrack", "no-endpoints", "restart"),
)
"""Something of all that a proxy writes to the kernel, removes from it, and finds there when it starts."""
PROFILES = ("default", "restart")
GLOBS = tuple(f"{group}.*" for group in GROUPS)


def selected(globs: tuple[str, ...] = GLOBS, profiles: tuple[str, ...] = PROFILES) -> list[Case]:
    """The cases of these profiles that a glob fits, without those that wait for real time."""
    return [
        case
        for case in CATALOGUE
        if case.profile.name in profiles
        and not case.slow
        and any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)
    ]
