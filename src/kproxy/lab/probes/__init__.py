"""Probes: what a client of the lab sends, and what it observes."""
