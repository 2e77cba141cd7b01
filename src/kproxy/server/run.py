"""Begins the daemon and keeps it running until it is told to stop, or must be started again.

Called by `kproxy.server.command`; handles signals.  The API server is asked when all is imported that its answer needs:
reading the answer is work for one processor, as importing is.  Stopping leaves all rules in place (``life.restart-keeps``).
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import socket
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kproxy import descriptors, host
from kproxy.host import HostError
from kproxy.server import tuning
from kproxy.server.client import ApiClient
from kproxy.server.config import Configuration, Mode
from kproxy.server.credentials import Authorizer
from kproxy.server.flags import Given
from kproxy.server.kubeconfig import Connection, KubeconfigError, from_file, in_cluster
from kproxy.server.lifecycle import CannotRun, Daemon, Ending, MustRestart, begin
from kproxy.server.store import Store
from kproxy.server.watch import ENDPOINT_SLICES, SERVICE_CIDRS, SERVICES, Resource, Watcher, node_named
from kproxy.server.watch_file import WatchedFile

COLLECT_SELDOM = (50_000, 20, 100)
"""Thresholds of the garbage collector, once it works: not before the first sync, which keeps what it makes."""

_REASONS = (CannotRun, HostError, KubeconfigError)
"""Why the daemon cannot run with what it was given."""

log = logging.getLogger("kproxy")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: ``file`` is where the configuration is from, ``given`` are the flags."""

    config: Configuration
    given: Given
    file: WatchedFile | None = None


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
        begin(partial(options.file.wait, partial(ending.put, _changed(options.file))), "configuration")
    begin(partial(_set_up_or_tell, options, ending), "start")
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
    client = _client(config, options.given.text("master"))
    descriptors.raise_limit()
    tuning.set_oom_score(config.oom_score_adj)
    tuning.set_conntrack(config.conntrack)
    from kproxy.server.serve import load_mode, serve  # noqa: PLC0415 - who asks for help need not wait for it

    load_mode(config)
    store = Store(time.monotonic)
    _watch_cluster(config, client, store, name)
    serve(Daemon(config, name, store, options.given, client.requests), client, ending)


def _watch_cluster(config: Configuration, client: ApiClient, store: Store, name: str) -> None:
    resources = [node_named(name), SERVICES, ENDPOINT_SLICES]
    if config.mode == Mode.NFTABLES.value:
        resources.append(SERVICE_CIDRS)
    for resource in resources:
        begin(Watcher(client, resource, store).run, f"watch {_plural(resource)}")


def node_name(config: Configuration) -> str:
    """The name of this node's Node object (``cfg.hostname-override``): as configured, or the host name."""
    return config.hostname_override or socket.gethostname().strip().lower()


def _client(config: Configuration, master: str) -> ApiClient:
    read = partial(_connection, config.client_connection.kubeconfig, master)
    connection = read()
    return ApiClient(connection, Authorizer(connection.credentials, host.run), read)


def _connection(path: str, master: str) -> Connection:
    if path or not master:
        connection = from_file(Path(path)) if path else in_cluster(os.environ)
    else:
        connection = Connection(server=master)
    if master:
        connection = replace(connection, server=master if "://" in master else f"http://{master}")
    return connection


def _plural(resource: Resource) -> str:
    return resource.path.rpartition("/")[2]


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Stop
