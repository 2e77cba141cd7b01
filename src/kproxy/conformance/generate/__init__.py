"""Generated worlds: cases that nobody wrote, with the oracle's answers; what fails is made small enough to commit.

A world is a `kproxy.conformance.case.Case` like any other, so every testbed runs it, beside all others.
"""
