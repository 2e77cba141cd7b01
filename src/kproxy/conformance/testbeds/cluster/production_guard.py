"""Guard against production clusters. Pure.

A cluster may be used if its context or server is not named after production, it has at most `MAX_NODES` nodes, and no
pods but those of namespaces `OWN` (those of Kubernetes, kind and k3s, Sonobuoy's, and ours). ``--allow-production`` overrides it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

MAX_NODES = 10
OWN = re.compile(r"kube-.*|kproxy-.*|local-path-storage|sonobuoy")
PLAYGROUND = "default"
"""Namespace where people's first pods are."""
_PRODUCTION = re.compile(r"(?:^|[^a-z])(?:prod|production|prd|live)(?:[^a-z]|$)")
_SHOWN = 3


def production_signs(context: str, server: str, nodes: int, namespaces: Collection[str]) -> list[str]:
    """Reasons why it looks like production; ``namespaces``: those that have pods."""
    return list(_production_signs(context, server, nodes, namespaces))


def playground_hint(namespaces: Collection[str]) -> str:
    """Advice where the only foreign pods are in the namespace ``default``; else empty."""
    if {name for name in namespaces if not OWN.fullmatch(name)} != {PLAYGROUND}:
        return ""
    return (
        "If this is a cluster for tests, and the pods in default are your own trials, remove them "
        "(`kubectl -n default get deployments,pods` lists them) or give --allow-production: no case touches them"
    )


def _production_signs(context: str, server: str, nodes: int, namespaces: Collection[str]) -> Iterator[str]:
    for what, name in (("context", context), ("server", server)):
        if _PRODUCTION.search(name.lower()):
            yield f"the {what} is called {name}"
    if nodes > MAX_NODES:
        yield f"it has {nodes} nodes"
    others = sorted(name for name in namespaces if not OWN.fullmatch(name))
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield f"foreign pods run in {', '.join(others[:_SHOWN])}{more}"
