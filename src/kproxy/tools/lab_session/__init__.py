"""Cluster rebuilt in the lab from kubectl's output: its objects, its pods' addresses, two of its nodes.

``kproxy lab up`` keeps one running; ``kproxy compare`` builds two, one for each proxy, and compares them.
"""
