"""``kproxy compare``: a cluster under two proxies, and the differences."""
