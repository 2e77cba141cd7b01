"""Testbeds: `simulator` (rules walked in memory), `netns` (real packets on this machine), `cluster` (a real cluster)."""
