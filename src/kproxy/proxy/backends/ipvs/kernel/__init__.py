"""The effects of ipvs mode: IPVS and the device by netlink, ipsets and chains by their tools; all else is pure."""

from kproxy.proxy.backends.ipvs.kernel.applier import (
    Applied,
    IpvsKernel,
    IpvsSettings,
    check_kernel,
    remove_ipvs_objects,
)

__all__ = ["Applied", "IpvsKernel", "IpvsSettings", "check_kernel", "remove_ipvs_objects"]
