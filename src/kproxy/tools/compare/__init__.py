"""``kproxy compare``: somebody's cluster under two proxies, and what differs."""
