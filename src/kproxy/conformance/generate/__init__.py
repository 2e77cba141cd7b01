"""Generated worlds: random cases with the oracle's verdicts; failing ones are shrunk until they can be committed.

A world is a `kproxy.conformance.case.Case` like any other, so every testbed runs it, beside all others.
"""
