"""ipvs mode: virtual servers in the kernel's IPVS, guarded by iptables chains of constant size and ipsets."""
