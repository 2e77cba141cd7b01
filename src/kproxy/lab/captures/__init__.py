"""Captures: packets of a namespace as they passed, and the marks they carried."""
