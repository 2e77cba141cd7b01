"""Marks on packets that rules and the relay have to agree on.  Pure."""

RELAY_MARK, RELAY_MASK = 0x4D00_0000, 0xFF00_0000
"""Mark of packets that the relay sends from clients' addresses (SO_MARK): IPVS and other programs send such packets too."""
