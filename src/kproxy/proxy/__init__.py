"""The service proxy: what runs on a node.  Snapshot, plan, backends and the daemon; knows nothing of the specification."""
