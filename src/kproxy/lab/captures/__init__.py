"""Captures: packets that passed in a namespace, and their marks."""
