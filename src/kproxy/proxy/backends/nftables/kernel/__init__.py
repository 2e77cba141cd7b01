"""The effects of nftables mode: the bytes, the socket, and the kernel programmed by them; all else in this backend is pure."""

from kproxy.proxy.backends.nftables.kernel.applier import (
    NftablesKernel,
    check_kernel,
    machine_options,
    remove_table,
)

__all__ = ["NftablesKernel", "check_kernel", "machine_options", "remove_table"]
