"""Somebody's cluster, rebuilt in the lab from what kubectl printed: its objects, its pods' addresses, two of its nodes.

``kproxy lab up`` keeps one running; ``kproxy compare`` builds two, one for each proxy, and tells what differs.
"""
