"""Universes: two nodes, their proxies, an API server and clients, simulated from a seed; `kproxy simulate`.

Theory of operation. A *universe* is one guest whose clock and random numbers follow from a seed
(`kproxy.lab.kernels.universe`), in which a *schedule* is played: changes of objects, faults, and probes, each at its
time. The same seed gives the same packets, logs and nanoseconds, for any proxy.

The way of a universe, module by module:

- `draw`: the schedule of a seed; `draw_traffic`: its probes, flows and health requests; `claims`: the part of it that a subject
  claims to handle. `schedule`: its values; `schedule_files`: a
  schedule as a file.
- `launch`: boots the guest, and takes the recording's digest. `__main__`: the process inside.
- `play`: in the guest, starts the proxies, carries out the schedule, and prints a recording. `faults`: each fault of it;
  `other_program`: rules that are not the proxy's. `recording`: the lines of a recording.
- `history`: the objects that a node's rules may reflect at a time.
- `judge`: outside again, compares each probe with the oracle's verdict on all of these.
- `story`: what happened where something was unlawful, as text; `timeline`: as an HTML file. `results`: verdicts as lines of JSON.
- `shrink`: the shortest schedule that fails. `conformance_case`: the same as a case, where one can express it.
- `stop`: the moment of a universe at which its state is read; `shell`: commands at that moment, one by one.
- `command`: ``kproxy simulate``; `simulate_options`: its options.

Simulated time passes only while every process sleeps, so a proxy applies a change at the moment it is made unless it waits.
"""
