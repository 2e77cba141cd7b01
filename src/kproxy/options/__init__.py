"""Options of every command: one table, from which argparse, pytest, the documentation and the Action are made.

`table` is the data, `option` the shape of a row, `arguments` turns rows into arguments of argparse and of pytest.
Imports nothing of kproxy, so that a command that starts quickly goes on doing so.
"""
