"""The Node object of this node: waited for at start, then compared after every change.

Between `kproxy.proxy.daemon.cluster.store` and `kproxy.proxy.daemon.startup`. The detector of NodeCIDR mode is made
from ``spec.podCIDRs`` once: when they change, the daemon must be started again (``life.nodecidr-exit``).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from kproxy.model.api import Node
from kproxy.proxy.daemon.cluster.store import ClusterStore, Subscription
from kproxy.proxy.daemon.config.configuration import Configuration, DetectLocal
from kproxy.proxy.daemon.config.plan_settings import (
    node_addresses,
    pod_networks,
    status_addresses,
)
from kproxy.proxy.daemon.lifecycle import StartupError

NODE_SECONDS = 30.0
"""Seconds to wait for the Node's addresses before going on without them (``life.no-node``)."""

POD_NETWORK_SECONDS = 300.0
"""Seconds to wait after that for ``spec.podCIDRs`` where the detector needs them (``life.nodecidr-exit``)."""

log = logging.getLogger(__name__)


class PodCIDRsMissing(StartupError):
    """Node without ``spec.podCIDRs`` at the end of the wait, in NodeCIDR mode."""


def needs_pod_cidrs(config: Configuration) -> bool:
    """True if the detector needs the networks of this node's pods."""
    return config.detect_local_mode == DetectLocal.NODE_CIDR.value


def wait_for_node(config: Configuration, store: ClusterStore, name: str) -> Node | None:
    """The Node with its addresses, and with its pods' networks where they are needed.

    The first time runs from the first list of the Node, so an API server that is away costs none of it; the second follows it.
    Once the first is over, the Node is returned without addresses, or None without a Node.  Raises `PodCIDRsMissing`.

    Clause ``restart.zone-label.followed``.
    """
    feed = store.subscribe()
    try:
        _wait(feed, lambda: store.listed(Node), None)
        if not _wait(feed, lambda: bool(status_addresses(store.node(name))), NODE_SECONDS):
            lacking = "not known" if store.node(name) is None else "without addresses"
            log.warning("Node %s is %s after %g s", name, lacking, NODE_SECONDS)
        if needs_pod_cidrs(config) and not _wait(
            feed, lambda: bool(pod_networks(store.node(name))), POD_NETWORK_SECONDS
        ):
            raise PodCIDRsMissing(f"Node {name} has no spec.podCIDRs after {POD_NETWORK_SECONDS:g} s")
    finally:
        store.unsubscribe(feed)
    return store.node(name)


def _wait(feed: Subscription, condition: Callable[[], bool], seconds: float | None) -> bool:
    """Wait until a condition of the store holds, at most so many seconds (None: for ever); returns whether it does."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        seen = feed.pending
        if condition():
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        feed.wait(seen, None if seconds is None else left)


@dataclass(slots=True)
class NodeWatch:
    """Monitor of the Node that the daemon was set up with; `run` is the body of a thread."""

    config: Configuration
    node: Node | None
    on_restart_required: Callable[[str], None]
    """Called with the reason for which the daemon must be restarted."""

    def run(self, store: ClusterStore, name: str) -> None:
        """Check the Node after every change of the cluster, until a change ends the daemon."""
        feed = store.subscribe()
        while True:
            seen = feed.pending
            node = store.node(name)
            if node is not None and self.check(node):
                return
            feed.wait(seen, None)

    def check(self, node: Node) -> bool:
        """True if the Node has changed in a way that ends the daemon; other addresses are only logged (``life.nodeip-change``)."""
        known, self.node = self.node, node
        if known is None or known is node:
            return False
        if needs_pod_cidrs(self.config) and pod_networks(known) != pod_networks(node):
            networks = ", ".join(map(str, pod_networks(node))) or "none"
            self.on_restart_required(f"spec.podCIDRs of Node {node.metadata.name} changed: {networks} now")
            return True
        if node_addresses(self.config, known) != node_addresses(self.config, node):
            log.warning("the addresses of Node %s changed", node.metadata.name)
        return False
