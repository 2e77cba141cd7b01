"""nftables mode: rules of constant number; Services and endpoints are elements of maps and sets."""
