"""What is kept of a failure: the state of both nodes, and of the question that failed asked once more, alone.

`state` reads nodes, `counters` says which rules a packet has met, `witnesses` watch the question being asked again,
`collector` puts it together for the netns testbed.
"""
