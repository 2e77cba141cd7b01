"""The effects of userspace mode: its chains, by the tools; the sockets are `kproxy.proxy.relay`'s.  All else is pure."""

from kproxy.proxy.backends.userspace.kernel.applier import (
    UserspaceKernel,
    keeps_sources,
    remove_portals,
    withdraw_portals,
)

__all__ = ["UserspaceKernel", "keeps_sources", "remove_portals", "withdraw_portals"]
