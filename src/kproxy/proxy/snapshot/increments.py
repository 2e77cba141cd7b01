"""A large cluster in ever larger parts, for its first plan: the kernel's tools work while the next part is planned.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kproxy.model.api import Cluster, EndpointSlice, Key
from kproxy.model.network import Family
from kproxy.proxy.snapshot.incremental import owner_of

FIRST, GROWTH = 256, 1024
"""Services of the first part, and by how many the parts grow."""


def cluster_increments(cluster: Cluster, family: Family) -> Iterator[Cluster]:
    """Ever more of the Services whose first address is the family's, with their slices, by name; then the cluster itself."""
    six = family is Family.IPV6
    names = sorted(key for key, item in cluster.services.items() if (":" in item.spec.cluster_ip) is six)
    ends = range(FIRST, len(names), GROWTH)
    slices = _by_service(cluster, family) if ends else {}
    for end in ends:
        some = names[:end]
        yield replace(
            cluster,
            services={name: cluster.services[name] for name in some},
            slices={key: item for name in some for key, item in slices.get(name, ())},
        )
    yield cluster


def _by_service(cluster: Cluster, family: Family) -> dict[Key, list[tuple[Key, EndpointSlice]]]:
    found: dict[Key, list[tuple[Key, EndpointSlice]]] = {}
    for key, item in cluster.slices.items():
        owner = owner_of(item, family)
        if owner is not None:
            found.setdefault(owner, []).append((key, item))
    return found
