"""nftables mode: a ruleset of constant size, everything that grows kept in map and set elements."""
