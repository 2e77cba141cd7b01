"""Runs cases on testbeds and judges what is observed."""
