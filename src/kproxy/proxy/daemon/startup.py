"""Startup after the wait for the Node: sets up each family, opens the ports, and starts the syncs.

Called by `kproxy.proxy.daemon.main` once the first requests are sent. All that only a daemon needs is imported here.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from functools import partial

from kproxy.model.api import Node
from kproxy.model.network import Family, family_of
from kproxy.proxy.backends import Dataplane, find_backend
from kproxy.proxy.daemon.cluster.announcements import DaemonEvents
from kproxy.proxy.daemon.cluster.client import ApiClient
from kproxy.proxy.daemon.cluster.event_recorder import EventRecorder, node_reference
from kproxy.proxy.daemon.cluster.node_watch import NodeWatch, wait_for_node
from kproxy.proxy.daemon.config.config_warnings import NodeNetworking, config_warnings
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.plan_settings import CurrentSettings, node_addresses, pod_networks
from kproxy.proxy.daemon.http.listeners import CannotListen, open_ports
from kproxy.proxy.daemon.lifecycle import DaemonContext, ExitQueue, RestartRequired, start_thread
from kproxy.proxy.daemon.sync.conntrack_cleanup import ConntrackCleaner
from kproxy.proxy.daemon.sync.dataplane import (
    UnusableMode,
    monitor_addresses,
    open_dataplanes,
)
from kproxy.proxy.daemon.sync.family_sync import FamilySync
from kproxy.proxy.daemon.sync.pacing import SyncPeriods

GC_DELAY_SECONDS = 2.0
"""Seconds from a family's first sync to enabling the garbage collector."""

DRIFT_CHECK_SECONDS = 2.0
"""Seconds between checks where the kernel reports changes by notifications: for what it does not report, such as sysctls."""

log = logging.getLogger(__name__)


def start_daemon(daemon: DaemonContext, client: ApiClient, exit_queue: ExitQueue) -> None:
    """Wait for the Node, then start; returns when all threads run.

    Raises `kproxy.proxy.daemon.lifecycle.StartupError` or `HostError` for a reason not to. ``exit_queue`` receives
    the exception that ends the daemon later.
    """
    config, name, store = daemon.config, daemon.name, daemon.store
    node = wait_for_node(config, store, name)
    watch = NodeWatch(config, node, lambda why: exit_queue.put(RestartRequired(why)))
    start_thread(partial(watch.run, store, name), "node")
    events = DaemonEvents(
        EventRecorder(client, name), node_reference(name, node.metadata.uid if node else ""), store
    )
    start_thread(events.recorder.run, "events")
    _start_syncs(daemon, node, events)
    events.started(config)


def _start_syncs(daemon: DaemonContext, node: Node | None, events: DaemonEvents) -> None:
    config = daemon.config
    known = node_addresses(config, node)
    primary = family_of(known[0]) if known else Family.IPV4
    planes = open_dataplanes(config, primary)
    _log_config_warnings(config, NodeNetworking(primary, frozenset(planes), pod_networks(node)))
    syncs = [_family_sync(daemon, family, plane) for family, plane in planes.items()]
    try:
        open_ports(daemon, syncs, events.health_check_failed)
    except CannotListen as error:
        events.cannot_listen(error)
        raise
    for sync in syncs:
        start_thread(sync.run, f"sync {sync.family.value}")


def _log_config_warnings(config: Configuration, situation: NodeNetworking) -> None:
    for each in config_warnings(config, situation):
        if each.fatal:
            raise UnusableMode(each.text)
        log.warning("configuration: %s", each.text)


def _family_sync(daemon: DaemonContext, family: Family, plane: Dataplane) -> FamilySync:
    config, addresses = daemon.config, monitor_addresses(family)
    settings = CurrentSettings(config, family, daemon.name, addresses.current)
    section = config.sync_section
    backend = find_backend(config.mode)
    look = DRIFT_CHECK_SECONDS if backend.quick_drift_checks else None
    pace = SyncPeriods(
        min_sync_period=section.min_sync_period.seconds,
        sync_period=section.sync_period.seconds,
        drift_check_period=look,
    )
    cleaner = ConntrackCleaner(family, addresses.current)
    sync = FamilySync(family, daemon.store, plane, cleaner, settings, pace, time.monotonic, _freeze_heap_soon)
    of_rules = plane.notifiers if backend.quick_drift_checks else tuple
    sync.notifiers = lambda: (*of_rules(), addresses.fileno())
    return sync


def _freeze_heap_soon() -> None:
    """Freeze the heap after a delay, so as not to delay another family's first sync."""
    later = threading.Timer(GC_DELAY_SECONDS, _freeze_heap)
    later.daemon = True
    later.start()


def _freeze_heap() -> None:
    """Exclude all present objects from garbage collection: after the first sync nearly everything in memory is permanent."""
    gc.collect()
    gc.freeze()
    gc.enable()
