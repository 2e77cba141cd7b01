"""Evidence of failures: the state of both nodes, and of the failed check repeated once, alone.

`state` reads nodes, `counters` finds the rules that packets matched, `witnesses` record the repeated check,
`collector` combines it for the netns testbed.
"""
