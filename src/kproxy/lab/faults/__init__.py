"""Faults and strangers in a lab: writes that fail, conntrack entries made by hand, the state of the machine beside it."""
