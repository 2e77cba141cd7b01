"""Sync of each family's rules with the store: scheduling, the dataplanes, removal of stale connections and other modes."""
