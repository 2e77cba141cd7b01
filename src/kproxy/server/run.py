"""``kproxy run``: puts the daemon together and keeps it running until it is told to stop.

The only module of `kproxy.server` that starts threads, handles signals and sets up logging.
Stopping leaves all rules in place (``life.restart-keeps``).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kproxy import host
from kproxy.api import Cluster, Node
from kproxy.net import Family, family_of
from kproxy.plan import Settings
from kproxy.server.client import ApiClient
from kproxy.server.config import Configuration, DetectLocal, Mode
from kproxy.server.credentials import Authorizer
from kproxy.server.dataplane import UnusableMode, dataplanes, require_built
from kproxy.server.kubeconfig import KubeconfigError, from_file, in_cluster
from kproxy.server.load import InvalidConfiguration, load
from kproxy.server.pacing import Pace
from kproxy.server.ports_set_up import CannotListen, open_ports
from kproxy.server.settings import node_addresses, pod_networks, settings_for
from kproxy.server.stale import StaleFlows
from kproxy.server.store import Store
from kproxy.server.sync import Dataplane, FamilySync
from kproxy.server.watch import ENDPOINT_SLICES, SERVICE_CIDRS, SERVICES, Resource, Watcher, node_named

NODE_SECONDS = 30.0
"""How long to wait for the Node object before going on without it (``life.no-node``)."""

POD_NETWORK_SECONDS = 300.0
"""How long to wait for ``spec.podCIDRs`` where the detector needs them (``life.nodecidr-exit``)."""

LOOK_SECONDS = 0.5
"""How often to look whether our rules are still there, where that costs next to nothing."""

COLLECT_SELDOM = (50_000, 20, 100)
"""Thresholds of the garbage collector, once it works: not before the first sync, which keeps what it makes."""

DEBUG_VERBOSITY = 4

log = logging.getLogger("kproxy")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; ``hostname_override`` None leaves it to the file."""

    config: Path
    hostname_override: str | None = None
    verbosity: int = 2


class CannotStart(Exception):
    """The daemon cannot run with what it was given; ``str()`` says why."""


class _Stop(BaseException):
    """A signal asks us to end."""


def run_proxy(options: Options) -> int:
    """Be this node's service proxy; returns the exit code: 0 when told to stop, 1 when it cannot run."""
    _set_up_logging(options.verbosity)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        _run(options)
    except _Stop:
        log.info("stopped; the rules stay")
        return 0
    except (CannotStart, CannotListen, InvalidConfiguration, KubeconfigError, UnusableMode, OSError) as error:
        for line in str(error).splitlines():
            log.error("cannot run: %s", line)  # noqa: TRY400 - the reason is all there is
        return 1


def _run(options: Options) -> NoReturn:
    gc.set_threshold(*COLLECT_SELDOM)
    gc.disable()
    config = _read_configuration(options)
    require_built(config)
    name = node_name(options.hostname_override, config)
    log.info("kproxy on node %s, mode %s", name, config.mode)
    store = Store(time.monotonic)
    client = _client(config)
    resources = [node_named(name), SERVICES, ENDPOINT_SLICES]
    if config.mode == Mode.NFTABLES.value:
        resources.append(SERVICE_CIDRS)
    for resource in resources:
        _start(Watcher(client, resource, store).run, f"watch {_plural(resource)}")
    node = _wait_for_node(config, store, name)
    planes = dataplanes(config, _primary(config, node))
    syncs = [_family_sync(config, name, store, family, plane) for family, plane in planes.items()]
    open_ports(config, name, store, syncs)
    for sync in syncs:
        _start(sync.run, f"sync {sync.family.value}")
    while True:
        signal.pause()


def _read_configuration(options: Options) -> Configuration:
    try:
        text = options.config.read_bytes()
    except OSError as error:
        raise CannotStart(f"configuration {options.config}: {error.strerror}") from error
    loaded = load(text)
    for warning in loaded.warnings:
        log.warning("configuration: %s", warning)
    return loaded.config


def node_name(flag: str | None, config: Configuration) -> str:
    """The name of this node's Node object (``cfg.hostname-override``): flag, file, host name, in this order."""
    if flag is not None:
        if not flag.strip():
            raise CannotStart("--hostname-override must not be blank")
        return flag.strip().lower()
    return config.hostname_override or socket.gethostname().strip().lower()


def _client(config: Configuration) -> ApiClient:
    path = config.client_connection.kubeconfig
    connection = from_file(Path(path)) if path else in_cluster(os.environ)
    return ApiClient(connection, Authorizer(connection.credentials, host.run))


def _wait_for_node(config: Configuration, store: Store, name: str) -> Node | None:
    """The Node, with its pods' networks where they are needed, or None when it does not come in time."""
    feed = store.subscribe()
    by_node = config.detect_local_mode == DetectLocal.NODE_CIDR.value
    deadline = time.monotonic() + (POD_NETWORK_SECONDS if by_node else NODE_SECONDS)
    try:
        while (left := deadline - time.monotonic()) > 0:
            seen = feed.pending
            node = store.node(name)
            if node is not None and (pod_networks(node) or not by_node):
                return node
            feed.wait(seen, left)
    finally:
        store.unsubscribe(feed)
    if by_node:
        raise CannotStart(f"Node {name} has no spec.podCIDRs after {POD_NETWORK_SECONDS:g} s")
    log.warning("Node %s is not known after %g s; going on without it", name, NODE_SECONDS)
    return None


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


def _set_up_logging(verbosity: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(
        level=logging.DEBUG if verbosity >= DEBUG_VERBOSITY else logging.INFO, handlers=[handler]
    )
