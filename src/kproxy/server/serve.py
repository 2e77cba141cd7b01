"""The node is known, or will not be: sets up each family, opens the ports, and begins to sync.

Called by `kproxy.server.run` once the API server has been asked.  All that only a daemon needs is imported here.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from functools import partial

from kproxy.api import Cluster, Node
from kproxy.net import Family, family_of
from kproxy.plan import Settings
from kproxy.server.advice import Situation, advice
from kproxy.server.announce import Announcer
from kproxy.server.client import ApiClient
from kproxy.server.config import Configuration, Mode
from kproxy.server.dataplane import UnusableMode, dataplanes, follow_addresses, load_mode
from kproxy.server.lifecycle import Daemon, Ending, MustRestart, begin
from kproxy.server.node_watch import NodeWatch, wait_for_node
from kproxy.server.pacing import Pace
from kproxy.server.ports_set_up import CannotListen, open_ports
from kproxy.server.recorder import Recorder, node_reference
from kproxy.server.settings import node_addresses, pod_networks, settings_for
from kproxy.server.stale import StaleFlows
from kproxy.server.sync import Dataplane, FamilySync

__all__ = ["load_mode", "serve"]

SETTLE_AFTER_SECONDS = 2.0
"""How long after a family's first sync the garbage collector begins its work."""

LOOK_SECONDS = 0.5
"""How often to look whether somebody changed our rules, where the kernel tells that of its own accord."""

log = logging.getLogger(__name__)


def serve(daemon: Daemon, client: ApiClient, ending: Ending) -> None:
    """Wait for the Node, then begin; returns when all threads run.

    Raises `kproxy.server.lifecycle.CannotRun` or `HostError` for a reason not to.  ``ending`` is told what ends the
    daemon later.
    """
    config, name, store = daemon.config, daemon.name, daemon.store
    node = wait_for_node(config, store, name)
    watch = NodeWatch(config, node, lambda why: ending.put(MustRestart(why)))
    begin(partial(watch.run, store, name), "node")
    events = Announcer(Recorder(client, name), node_reference(name, node.metadata.uid if node else ""), store)
    begin(events.recorder.run, "events")
    _sync(daemon, node, events)
    events.started(config)


def _sync(daemon: Daemon, node: Node | None, events: Announcer) -> None:
    config = daemon.config
    known = node_addresses(config, node)
    primary = family_of(known[0]) if known else Family.IPV4
    planes = dataplanes(config, primary)
    _advise(config, Situation(primary, frozenset(planes), pod_networks(node)))
    syncs = [_family_sync(daemon, family, plane) for family, plane in planes.items()]
    try:
        open_ports(daemon, syncs, events.health_check_failed)
    except CannotListen as error:
        events.cannot_listen(error)
        raise
    for sync in syncs:
        begin(sync.run, f"sync {sync.family.value}")


def _advise(config: Configuration, situation: Situation) -> None:
    for each in advice(config, situation):
        if each.fatal:
            raise UnusableMode(each.text)
        log.warning("configuration: %s", each.text)


def _family_sync(daemon: Daemon, family: Family, plane: Dataplane) -> FamilySync:
    config, addresses = daemon.config, follow_addresses(family)

    def settings(cluster: Cluster) -> Settings:
        return settings_for(
            config,
            family,
            daemon.name,
            cluster.node(daemon.name),
            addresses.current(),
            cluster.service_cidrs.values(),
        )

    section = config.paced_by
    look = None if config.mode == Mode.IPVS.value else LOOK_SECONDS
    pace = Pace(shortest=section.min_sync_period.seconds, longest=section.sync_period.seconds, look=look)
    stale = StaleFlows(family, addresses.current)
    return FamilySync(family, daemon.store, plane, stale, settings, pace, time.monotonic, _settle_memory_soon)


def _settle_memory_soon() -> None:
    """A moment after a first sync, so as not to hold up another family's."""
    later = threading.Timer(SETTLE_AFTER_SECONDS, _settle_memory)
    later.daemon = True
    later.start()


def _settle_memory() -> None:
    """After the first sync nearly everything in memory is there to stay: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()
