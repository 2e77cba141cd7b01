"""The effects of nftables mode: messages, socket and applier; all else in this backend is pure."""

from kproxy.proxy.backends.nftables.kernel.applier import (
    NftablesKernel,
    affinity_use,
    check_kernel,
    machine_options,
    remove_table,
)

__all__ = ["NftablesKernel", "affinity_use", "check_kernel", "machine_options", "remove_table"]
