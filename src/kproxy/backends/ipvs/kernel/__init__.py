"""The effects of ipvs mode: IPVS and the device by netlink, ipsets and chains by their tools; all else is pure."""

from kproxy.backends.ipvs.kernel.programmer import (
    Applied,
    Configuration,
    IpvsKernel,
    check_kernel,
    remove_all,
)

__all__ = ["Applied", "Configuration", "IpvsKernel", "check_kernel", "remove_all"]
