"""Dataplane of a mode whose rules cannot serve loopback: its own, and the relay's sockets at 127.0.0.1 beside it.

Between `kproxy.proxy.daemon.sync.dataplane` and `kproxy.proxy.relay`; knows no mode by name.
"""

from __future__ import annotations

from functools import cache

from kproxy.proxy.backends import Applied, Dataplane
from kproxy.proxy.plan import Plan
from kproxy.proxy.relay.relay import LocalRelay
from kproxy.proxy.relay.table import loopback_node_ports


@cache
def localhost_relay() -> LocalRelay:
    """The relay of this process, started at the first call."""
    relay = LocalRelay()
    relay.start()
    return relay


def running_relay() -> LocalRelay | None:
    """The relay of this process, if it has one."""
    return localhost_relay() if localhost_relay.cache_info().currsize else None


class RelayingDataplane:
    """A dataplane, and the relay's ports for each plan that it applied."""

    def __init__(self, plane: Dataplane, relay: LocalRelay) -> None:
        self._plane, self._relay = plane, relay

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan, rules first: clients at loopback are the node's own, and wait for no rule.

        A port that a daemon of the node has taken is logged and no failure: the rules of all Services stand.
        """
        written = self._plane.apply(plan)
        self._relay.update(loopback_node_ports(plan))
        return written

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        """Changes of the rules by others: nobody else can change the sockets."""
        return self._plane.find_drift(thorough=thorough)

    def refresh_options(self) -> bool:
        """As the mode's own."""
        return self._plane.refresh_options()

    def forget(self) -> None:
        """As the mode's own: the relay knows what it has open."""
        self._plane.forget()
