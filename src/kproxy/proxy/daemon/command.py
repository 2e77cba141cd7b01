"""``kproxy run``: kube-proxy's command line, and the actions it selects.

The entry of the daemon, called by `kproxy.cli`. All errors in flags and file are reported before anything is changed;
then it writes the configuration, cleans the node up, prepares it, or runs the proxy.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kproxy import __version__
from kproxy.linux.host import HostError
from kproxy.linux.netlink_socket import require_net_admin
from kproxy.proxy.backends import find_backend
from kproxy.proxy.daemon import logs, node_tuning
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.file_watch import WatchedFile
from kproxy.proxy.daemon.config.flag_table import FLAGS, REMOVED_FLAGS
from kproxy.proxy.daemon.config.flags import FlagError, ParsedFlags, flag_usage, parse_flags
from kproxy.proxy.daemon.config.load import InvalidConfiguration
from kproxy.proxy.daemon.config.resolve import Resolved, resolve, unwritable_fields
from kproxy.proxy.daemon.config.write import to_yaml
from kproxy.proxy.daemon.main import DaemonOptions, run_proxy

EXIT_OK, EXIT_FAILURE = 0, 1

log = logging.getLogger(__name__)


def run_daemon_command(arguments: Sequence[str]) -> int:
    """Run the command with the arguments after ``kproxy run``; returns the exit code: 0, or 1 after an error."""
    try:
        given = parse_flags(arguments, FLAGS, REMOVED_FLAGS)
        if given.is_set("help"):
            return _print(f"kproxy run [flags]\n\nBe this node's service proxy.\n\n{flag_usage(FLAGS)}")
        if given.text("version"):
            return _print(f"kproxy {__version__}")
        file = _watched_config_file(given)
        resolved = resolve(given, file.content if file else None)
    except FlagError as error:
        return _report_errors(error.problems)
    except InvalidConfiguration as error:
        where = f"--config {given.text('config')}: " if given.text("config") else ""
        return _report_errors(f"{'' if e.path.startswith('--') else where}{e}" for e in error.problems)
    return _execute(given, resolved, file)


def _report_errors(texts: Iterable[str]) -> int:
    for text in texts:
        sys.stderr.write(f"kproxy run: {text}\n")
    return EXIT_FAILURE


def _execute(given: ParsedFlags, resolved: Resolved, file: WatchedFile | None) -> int:
    config = resolved.config
    logs.configure_logging(config.logging)
    for warning in resolved.warnings:
        log.warning("configuration%s: %s", f" {file.path}" if file else "", warning)
    if target := given.text("write-config-to"):
        return write_configuration(config, Path(target))
    if given.is_set("cleanup"):
        return cleanup_node()
    if given.is_set("init-only"):
        return prepare_node(config)
    return run_proxy(DaemonOptions(config, given, file))


def write_configuration(config: Configuration, path: Path) -> int:
    """``--write-config-to``: write all fields to a file that loads as the same configuration (``cfg.write-config-to``)."""
    for line in unwritable_fields(config):
        log.warning("not representable in a configuration file: %s", line)
    try:
        path.write_text(to_yaml(config), encoding="utf-8")
    except OSError as error:
        log.error("cannot write %s: %s", path, error.strerror)  # noqa: TRY400 - the reason is all there is
        return EXIT_FAILURE
    log.info("wrote configuration", extra=logs.key_values(file=str(path)))
    return EXIT_OK


def cleanup_node() -> int:
    """``--cleanup``: remove the rules of every mode from this node (``cleanup.nothing-served``, ``cleanup.nothing-left``)."""
    try:
        require_net_admin()
    except HostError as error:
        log.error("nothing removed: %s", error)  # noqa: TRY400 - the reason is all there is
        return EXIT_FAILURE
    from kproxy.proxy.daemon.sync.dataplane import remove_all_modes  # noqa: PLC0415 - the backends of all modes

    problems = remove_all_modes()
    for problem in dict.fromkeys(map(str, problems)):  # several modes may look at the same tables
        log.error("not removed: %s", problem)
    return EXIT_FAILURE if problems else EXIT_OK


def prepare_node(config: Configuration) -> int:
    """``--init-only``: apply the settings that need more than CAP_NET_ADMIN (``cfg.init-only``).

    No API server is contacted.
    """
    try:
        node_tuning.set_conntrack(config.conntrack)
        node_tuning.set_loopback_routing(config)
        find_backend(config.mode).prepare_node(config)
    except HostError as error:
        log.error("cannot prepare the node: %s", error)  # noqa: TRY400 - the reason is all there is
        return EXIT_FAILURE
    return EXIT_OK


def _watched_config_file(given: ParsedFlags) -> WatchedFile | None:
    """The file of ``--config``.  Raises `FlagError` if it cannot be read."""
    path = given.text("config")
    try:
        return WatchedFile(Path(path), Path(path).read_bytes()) if path else None
    except OSError as error:
        raise FlagError([f"--config {path}: {error.strerror}"]) from error


def _print(text: str) -> int:
    sys.stdout.write(text + "\n")
    return EXIT_OK
