"""Puts the daemon together and keeps it running until it is told to stop, or must be started again.

The only module of `kproxy.server` that starts threads and handles signals; `kproxy.server.command` calls it.
Stopping leaves all rules in place (``life.restart-keeps``).
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kproxy import host
from kproxy.api import Cluster, Node
from kproxy.host import HostError
from kproxy.net import Family, family_of
from kproxy.plan import Settings
from kproxy.server import tuning
from kproxy.server.advice import Situation, advice
from kproxy.server.announce import Announcer
from kproxy.server.client import ApiClient
from kproxy.server.config import Configuration, Mode
from kproxy.server.credentials import Authorizer
from kproxy.server.dataplane import UnusableMode, dataplanes
from kproxy.server.kubeconfig import Connection, KubeconfigError, from_file, in_cluster
from kproxy.server.node_watch import NodeWatch, NoPodNetworks, wait_for_node
from kproxy.server.pacing import Pace
from kproxy.server.ports_set_up import CannotListen, open_ports
from kproxy.server.recorder import Recorder, node_reference
from kproxy.server.settings import node_addresses, pod_networks, settings_for
from kproxy.server.stale import StaleFlows
from kproxy.server.store import Store
from kproxy.server.sync import Dataplane, FamilySync
from kproxy.server.watch import ENDPOINT_SLICES, SERVICE_CIDRS, SERVICES, Resource, Watcher, node_named
from kproxy.server.watch_file import WatchedFile

LOOK_SECONDS = 0.5
"""How often to look whether our rules are still there, where that costs next to nothing."""

COLLECT_SELDOM = (50_000, 20, 100)
"""Thresholds of the garbage collector, once it works: not before the first sync, which keeps what it makes."""

_REASONS = (CannotListen, HostError, KubeconfigError, NoPodNetworks, UnusableMode)
"""Why the daemon cannot run with what it was given."""

log = logging.getLogger("kproxy")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run; ``master`` beats the kubeconfig's server, ``file`` is where the configuration is from."""

    config: Configuration
    master: str = ""
    file: WatchedFile | None = None


class MustRestart(Exception):
    """What the daemon was set up by has changed; ``str()`` says what."""


Ending = queue.SimpleQueue[Exception]
"""Takes what ends the daemon, from any thread."""


class _Stop(BaseException):
    """A signal asks us to end."""


def run_proxy(options: Options) -> int:
    """Be this node's service proxy; returns the exit code: 0 when told to stop, 1 when it cannot run (on)."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        _run(options)
    except _Stop:
        log.info("stopped; the rules stay")
        return 0
    except MustRestart as change:
        log.error("ending, to be started again: %s", change)  # noqa: TRY400 - not a fault
        return 1
    except (*_REASONS, OSError) as error:
        for line in str(error).splitlines():
            log.error("cannot run: %s", line)  # noqa: TRY400 - the reason is all there is
        return 1


def _run(options: Options) -> NoReturn:
    """All work is done by threads: this one waits for a signal, or for what ends the daemon."""
    gc.set_threshold(*COLLECT_SELDOM)
    gc.disable()
    ending: Ending = queue.SimpleQueue()
    if options.file is not None:
        _start(partial(options.file.wait, partial(ending.put, _changed(options.file))), "configuration")
    _start(partial(_set_up_or_tell, options, ending), "start")
    raise ending.get()


def _changed(file: WatchedFile) -> MustRestart:
    return MustRestart(f"the configuration file {file.path} changed")


def _set_up_or_tell(options: Options, ending: Ending) -> None:
    try:
        _set_up(options, ending)
    except Exception as error:  # noqa: BLE001 - raised again by the main thread
        ending.put(error)


def _set_up(options: Options, ending: Ending) -> None:
    config = options.config
    name = node_name(config)
    log.info("kproxy on node %s, mode %s", name, config.mode)
    client = _client(config, options.master)
    tuning.set_oom_score(config.oom_score_adj)
    tuning.set_conntrack(config.conntrack)
    store = Store(time.monotonic)
    _watch_cluster(config, client, store, name)
    node = wait_for_node(config, store, name)
    watch = NodeWatch(config, node, lambda why: ending.put(MustRestart(why)))
    _start(partial(watch.run, store, name), "node")
    events = Announcer(Recorder(client, name), node_reference(name, node.metadata.uid if node else ""), store)
    _start(events.recorder.run, "events")
    _sync(config, node, store, events)
    events.started(config)


def _watch_cluster(config: Configuration, client: ApiClient, store: Store, name: str) -> None:
    resources = [node_named(name), SERVICES, ENDPOINT_SLICES]
    if config.mode == Mode.NFTABLES.value:
        resources.append(SERVICE_CIDRS)
    for resource in resources:
        _start(Watcher(client, resource, store).run, f"watch {_plural(resource)}")


def _sync(config: Configuration, node: Node | None, store: Store, events: Announcer) -> None:
    """Set up each family, open the ports, begin; raises what `run_proxy` takes for a reason not to run."""
    primary = _primary(config, node)
    planes = dataplanes(config, primary)
    _advise(config, Situation(primary, frozenset(planes), pod_networks(node)))
    name = node_name(config)
    syncs = [_family_sync(config, name, store, family, plane) for family, plane in planes.items()]
    try:
        open_ports(config, name, store, syncs, events.health_check_failed)
    except CannotListen as error:
        events.cannot_listen(error)
        raise
    for sync in syncs:
        _start(sync.run, f"sync {sync.family.value}")


def _advise(config: Configuration, situation: Situation) -> None:
    for each in advice(config, situation):
        if each.fatal:
            raise UnusableMode(each.text)
        log.warning("configuration: %s", each.text)


def node_name(config: Configuration) -> str:
    """The name of this node's Node object (``cfg.hostname-override``): as configured, or the host name."""
    return config.hostname_override or socket.gethostname().strip().lower()


def _client(config: Configuration, master: str) -> ApiClient:
    path = config.client_connection.kubeconfig
    if path or not master:
        connection = from_file(Path(path)) if path else in_cluster(os.environ)
    else:
        connection = Connection(server=master)
    if master:
        connection = replace(connection, server=master if "://" in master else f"http://{master}")
    return ApiClient(connection, Authorizer(connection.credentials, host.run))


def _primary(config: Configuration, node: Node | None) -> Family:
    known = node_addresses(config, node)
    return family_of(known[0]) if known else Family.IPV4


def _family_sync(
    config: Configuration, name: str, store: Store, family: Family, plane: Dataplane
) -> FamilySync:
    def settings(cluster: Cluster) -> Settings:
        return settings_for(
            config,
            family,
            name,
            cluster.node(name),
            host.interface_addresses(),
            cluster.service_cidrs.values(),
        )

    section = config.paced_by
    look = LOOK_SECONDS if config.mode == Mode.NFTABLES.value else None
    pace = Pace(shortest=section.min_sync_period.seconds, longest=section.sync_period.seconds, look=look)
    return FamilySync(
        family, store, plane, StaleFlows(family), settings, pace, time.monotonic, _settle_memory
    )


def _settle_memory() -> None:
    """After the first sync nearly everything in memory is there to stay: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _start(body: Callable[[], None], name: str) -> None:
    threading.Thread(target=body, name=name, daemon=True).start()


def _plural(resource: Resource) -> str:
    return resource.path.rpartition("/")[2]


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Stop
