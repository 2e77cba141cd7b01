"""Fault injection and foreign state: failing writes, hand-made conntrack entries, state of the machine."""
