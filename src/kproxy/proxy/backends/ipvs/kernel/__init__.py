"""The effects of ipvs mode: IPVS and the device by netlink, ipsets and chains by their tools; all else is pure."""

from kproxy.proxy.backends.ipvs.kernel.applier import (
    IpvsKernel,
    IpvsSettings,
    check_kernel,
    ipvs_settings,
    prepare_ipvs,
)
from kproxy.proxy.backends.ipvs.kernel.leftovers import (
    drain_ipvs,
    end_drain,
    leave_device,
    remove_ipvs_objects,
)

__all__ = [
    "IpvsKernel",
    "IpvsSettings",
    "check_kernel",
    "drain_ipvs",
    "end_drain",
    "ipvs_settings",
    "leave_device",
    "prepare_ipvs",
    "remove_ipvs_objects",
]
