"""Universes: two nodes, their proxies, an API server and clients, simulated from a seed; `kproxy simulate`.

Theory of operation. A *universe* is one guest whose clock and random numbers follow from a seed
(`kproxy.lab.kernels.universe`), in which a *schedule* is played: changes of objects, faults, and probes, each at its
time. The same seed gives the same packets, logs and nanoseconds, for any proxy.

The way of a universe, module by module:

- `draw`: the schedule of a seed. `schedule`: its values.
- `play`: in the guest, starts the proxies, does what the schedule says, and prints a recording. `recording`: its lines.
- `launch`: boots the guest, and takes the recording's digest.
- `history`: the objects that a node's rules may reflect at a time.
- `judge`: outside again, compares each probe with the oracle's verdict on all of these.
- `shrink`: the shortest schedule that fails. `conformance_case`: the same as a case, where one can express it.

Computing takes no time in a universe, so a change is in effect at the very moment it is made unless a program waits.
"""
