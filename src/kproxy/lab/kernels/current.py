"""Kernel and clock that this process runs on, as reports state them."""

from __future__ import annotations

from pathlib import Path

from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.uml import Time

_EVERY_USER = "4294967295"


def kernel_here() -> KernelName:
    """Way in which this process has its kernel."""
    if "User Mode Linux" in _text("/proc/cpuinfo"):
        return KernelName.UML
    if "virtme" in _text("/proc/cmdline"):
        return KernelName.VM
    users = _text("/proc/self/uid_map").split()
    return KernelName.HOST if users[2:] in ([], [_EVERY_USER]) else KernelName.ROOTLESS


def time_here() -> Time:
    """Clock of this process: virtual if the kernel skips idle time."""
    travels = kernel_here() is KernelName.UML and "time-travel" in _text("/proc/cmdline")
    return Time.VIRTUAL if travels else Time.REAL


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
