"""Linux interfaces: commands, netlink, conntrack, addresses.

The only effects that the proxy and the lab share.
"""
