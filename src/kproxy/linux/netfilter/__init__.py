"""A model of netfilter: rules of any packet filter of Linux as values, readers of them, and the walk of one packet.  Pure."""
