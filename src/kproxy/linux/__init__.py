"""The machine: commands, netlink, connection tracking, addresses.  The only effects that the proxy and the lab share."""
