"""``kproxy spec explain``: lawful outcomes of one packet in a cluster from kubectl's output, and their clauses.

Parses objects and arguments, queries `kproxy.spec.oracle`, shows the verdict. It knows no proxy and decides nothing.
"""
