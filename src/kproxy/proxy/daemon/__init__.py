"""The daemon of ``kproxy run``: configuration, watching the API server, pacing of syncs, health."""
