"""Main program of the daemon: starts it, and runs until a signal or a change that needs a restart.

Called by `kproxy.proxy.daemon.command`; handles signals. The first requests to the API server are sent once the
modules that decode the responses are imported: both need the processor. Stopping leaves all rules in place
(``restart.rules-kept``).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kproxy.linux import descriptors, host
from kproxy.linux.host import HostError
from kproxy.proxy.backends import find_backend
from kproxy.proxy.daemon import node_tuning
from kproxy.proxy.daemon.cluster.client import ApiClient
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.forward_proxy import (
    ForwardProxy,
    ForwardProxyError,
    environment_proxy,
)
from kproxy.proxy.daemon.cluster.kubeconfig import (
    ClientConfig,
    KubeconfigError,
    load_in_cluster_config,
    load_kubeconfig,
    server_url,
)
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.cluster.watch import (
    ENDPOINT_SLICES,
    SERVICE_CIDRS,
    SERVICES,
    Reflector,
    WatchedResource,
    node_resource,
)
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.file_watch import WatchedFile
from kproxy.proxy.daemon.config.flags import ParsedFlags
from kproxy.proxy.daemon.lifecycle import (
    DaemonContext,
    ExitQueue,
    RestartRequired,
    StartupError,
    start_thread,
)

GC_THRESHOLDS = (50_000, 20, 100)
"""gc.set_threshold values.

The collector is enabled after the first sync only: what that allocates is kept, so collecting would find nothing.
"""

_REASONS = (StartupError, HostError, KubeconfigError)
"""Exceptions that mean that the daemon cannot run."""

log = logging.getLogger("kproxy")


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """Input of a run: ``config``, the ``file`` that it is from, and the ``given`` flags."""

    config: Configuration
    given: ParsedFlags
    file: WatchedFile | None = None


class _Stop(BaseException):
    """Raised by the handler of SIGTERM and SIGINT."""


def run_proxy(options: DaemonOptions) -> int:
    """Run this node's service proxy; returns the exit code: 0 after a signal, 1 when it cannot run (on)."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        _run(options)
    except _Stop:
        log.info("stopped; the rules stay")
        return 0
    except RestartRequired as change:
        log.error("ending, to be started again: %s", change)  # noqa: TRY400 - not a fault
        return 1
    except (*_REASONS, OSError) as error:
        for line in str(error).splitlines():
            log.error("cannot run: %s", line)  # noqa: TRY400 - the reason is all there is
        return 1


def _run(options: DaemonOptions) -> NoReturn:
    """Start the threads that do all work; this one waits for a signal, or for an exception that ends the daemon."""
    gc.set_threshold(*GC_THRESHOLDS)
    gc.disable()
    ending = ExitQueue()
    if options.file is not None:
        start_thread(
            partial(options.file.wait, partial(ending.put, _config_changed(options.file))), "configuration"
        )
    start_thread(partial(_set_up_or_exit, options, ending), "start")
    raise ending.get()


def _config_changed(file: WatchedFile) -> RestartRequired:
    return RestartRequired(f"the configuration file {file.path} changed")


def _set_up_or_exit(options: DaemonOptions, exit_queue: ExitQueue) -> None:
    try:
        _set_up(options, exit_queue)
    except Exception as error:  # noqa: BLE001 - raised again by the main thread
        exit_queue.put(error)


def _set_up(options: DaemonOptions, exit_queue: ExitQueue) -> None:
    config = options.config
    name = node_name(config)
    log.info("kproxy on node %s, mode %s", name, config.mode)
    client = _client(config, options.given.text("master"))
    descriptors.raise_limit()
    node_tuning.set_oom_score(config.oom_score_adj)
    node_tuning.set_conntrack(config.conntrack)
    from kproxy.proxy.daemon.startup import start_daemon  # noqa: PLC0415 - `--help` does not wait for it

    find_backend(config.mode).load()
    store = ClusterStore(time.monotonic)
    _watch_cluster(config, client, store, name)
    start_daemon(DaemonContext(config, name, store, options.given, client.requests), client, exit_queue)


def _watch_cluster(config: Configuration, client: ApiClient, store: ClusterStore, name: str) -> None:
    resources = [node_resource(name), SERVICES, ENDPOINT_SLICES]
    if find_backend(config.mode).follows_service_cidrs:
        resources.append(SERVICE_CIDRS)
    for resource in resources:
        start_thread(
            Reflector(client, resource, store, server=client.server).run, f"watch {_plural(resource)}"
        )


def node_name(config: Configuration) -> str:
    """Name of this node's Node object (``cfg.hostname-override``): as configured, or the host name; in small letters.

    Raises `StartupError` for a blank name.
    """
    name = (config.hostname_override or socket.gethostname()).strip().lower()
    if not name:
        raise StartupError("the node's name must not be blank: see hostnameOverride")
    return name


def _client(config: Configuration, master: str) -> ApiClient:
    read = partial(_connection, config.client_connection.kubeconfig, master)
    connection = read()
    if connection.proxy is not None:
        log.info("%s is reached by the proxy %s", connection.server, connection.proxy)
    return ApiClient(connection, Authorizer(connection.credentials, host.run_tool), read)


def _connection(path: str, master: str) -> ClientConfig:
    if path or not master:
        connection = load_kubeconfig(Path(path)) if path else load_in_cluster_config(os.environ)
    else:
        connection = ClientConfig(server=_master_url(master))
    if master:
        connection = replace(connection, server=_master_url(master))
    return (
        connection if connection.proxy is not None else replace(connection, proxy=_proxy(connection.server))
    )


def _proxy(server: str) -> ForwardProxy | None:
    try:
        return environment_proxy(server, os.environ)
    except ForwardProxyError as error:
        raise KubeconfigError(str(error)) from error


def _master_url(master: str) -> str:
    try:
        return server_url(master)
    except KubeconfigError as error:
        raise KubeconfigError(f"--master {master}: {error}") from error


def _plural(resource: WatchedResource) -> str:
    return resource.path.rpartition("/")[2]


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    """End; a signal that follows, as of a process group and then of its leader, finds the end under way."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise _Stop
