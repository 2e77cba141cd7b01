"""``kproxy spec explain``: what is lawful for one packet in a cluster that kubectl printed, and by which clauses.

Reads objects and words, asks `kproxy.spec.oracle`, shows the answer.  It knows no proxy and decides nothing.
"""
