"""Waiting for conditions without an event."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from kproxy.linux import host


def eventually(true: Callable[[], object], patience: float = 10.0, every: float = 0.02) -> bool:
    """True if the condition holds within ``patience`` seconds; evaluated every ``every`` seconds."""
    deadline = time.monotonic() + patience
    while not (came := bool(true())) and time.monotonic() < deadline:
        time.sleep(every)
    return came


def await_bindable(*addresses: str) -> None:
    """Return once the kernel lets sockets bind to these addresses, which an interface of this network namespace has.

    One of IPv6 is tentative until a work queue has ended its duplicate address detection, also where none is done, as on ``lo``.
    """
    for address in addresses:
        assert _shown(address), f"no interface has {address}"
        usable = partial(_is_usable, address)
        assert eventually(usable), f"{address} stays tentative"


def _is_usable(address: str) -> bool:
    return not _shown(address, "tentative")


def _shown(address: str, *flags: str) -> str:
    return host.run_tool(("ip", "-o", "address", "show", "to", address, *flags))
