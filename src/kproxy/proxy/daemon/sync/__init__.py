"""Keeping a family's rules in step with the store: pacing, the backends, what is removed along the way."""
