"""Runs the unmodified daemon with injectable write failures and short timeouts.

``python launch.py FOLDER disk|plain SYNC_PERIOD run --config FILE``.  As long as there is a file ``FOLDER/always``, or once for a
file ``FOLDER/once``, ``iptables-restore`` and ``ipset`` fail before they begin, a transaction for nf_tables gets an additional
message that the kernel refuses, and the first of a batch of other netlink requests becomes one that it refuses.  Each failure
adds a line to ``FOLDER/failed``.  ``disk``: log and temporary files are on a file system of 128 kB that only the daemon sees,
``FOLDER/disk``.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import yaml

from kproxy.cli import main
from kproxy.linux.netlink import NetlinkFlag
from kproxy.linux.netlink_socket import Netlink
from kproxy.proxy.backends.nftables.kernel.batch import BatchError, Nftables
from kproxy.proxy.backends.nftables.kernel.messages import BatchMessage

TOOLS = ("iptables-restore", "ip6tables-restore", "ipset")
SCRIPT = """\
#!/bin/sh
if [ -e {folder}/always ] || rm {folder}/once 2>/dev/null; then
    echo {tool} >>{folder}/failed
    echo "made to fail" >&2
    exit 4
fi
exec {real} "$@"
"""
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
NO_SUCH_TYPE = 0xFF
NO_SUCH_MESSAGE = BatchMessage(NO_SUCH_TYPE, NetlinkFlag(0), bytes(4))


def wrap_tools(folder: Path) -> None:
    place = folder / "tools"
    place.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        if real := shutil.which(tool):
            script = place / tool
            script.write_text(SCRIPT.format(folder=folder, tool=tool, real=real))
            script.chmod(0o755)
    os.environ["PATH"] = f"{place}:{os.environ['PATH']}"


def wrap_transactions(folder: Path) -> None:
    commit = Nftables.commit

    def perhaps(self: Nftables, batch: Iterable[BatchMessage]) -> BatchError | None:
        return commit(self, [*batch, NO_SUCH_MESSAGE] if _fails(folder) else batch)

    Nftables.commit = perhaps  # type: ignore[method-assign]


def wrap_requests(folder: Path) -> None:
    send_all = Netlink.send_all

    def perhaps(self: Netlink, requests: Iterable[tuple[int, NetlinkFlag, bytes]]) -> list[int]:
        sent = list(requests)
        if sent and _fails(folder):
            sent[0] = (NO_SUCH_TYPE, NetlinkFlag(0), bytes(4))
        return send_all(self, sent)

    Netlink.send_all = perhaps  # type: ignore[method-assign]


def _fails(folder: Path) -> bool:
    try:
        (folder / "once").unlink()
    except FileNotFoundError:
        if not (folder / "always").exists():
            return False
    with (folder / "failed").open("a") as failed:
        failed.write("netlink\n")
    return True


def hurry(config: Path, sync_period: str) -> Path:
    """The configuration with another syncPeriod."""
    document = yaml.safe_load(config.read_text())
    for section in ("iptables", "nftables", "ipvs"):
        document[section]["syncPeriod"] = sync_period
    hurried = config.with_name("hurried.yaml")
    hurried.write_text(yaml.safe_dump(document))
    return hurried


def use_small_disk(folder: Path) -> None:
    """In a mount namespace of our own."""
    place = folder / "disk"
    place.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.unshare(CLONE_NEWNS), libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    if any((*done, libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, b"size=128k"))):
        raise OSError(ctypes.get_errno(), "no small disk")
    log = os.open(place / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    tempfile.tempdir = os.environ["TMPDIR"] = str(place)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if sys.argv[2] == "disk":
        use_small_disk(folder)
    wrap_tools(folder)
    wrap_transactions(folder)
    wrap_requests(folder)
    command, _, config = sys.argv[4:]
    sys.exit(main([command, "--config", str(hurry(Path(config), sys.argv[3]))]))
