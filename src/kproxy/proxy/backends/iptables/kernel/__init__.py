"""The effects of iptables mode: the tools, and the kernel they program; all else in this backend is pure."""

from kproxy.proxy.backends.iptables.kernel.applier import (
    IptablesKernel,
    machine_options,
    refresh_options,
    remove_iptables_rules,
    without_broken_counters,
)
from kproxy.proxy.backends.xtables.kernel.tools import Tools, Variant, find_tools

__all__ = [
    "IptablesKernel",
    "Tools",
    "Variant",
    "find_tools",
    "machine_options",
    "refresh_options",
    "remove_iptables_rules",
    "without_broken_counters",
]
