"""Probes: packets that a client of the lab sends, and the observations of what happens to them."""
