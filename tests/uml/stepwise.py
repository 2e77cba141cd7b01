"""kproxy that waits before each step in node a's kernel for IPv4 in ipvs mode.

``python -m tests.uml.stepwise ORDER SOCKET NODE run --config FILE``: ``ORDER`` is a name in `ORDERS`; the listener at the
Unix socket receives each step as text and lets it happen by a byte, so the time between two steps does not depend on how busy
the machine is.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from unittest import mock

from kproxy.cli import main
from kproxy.lab.topology import LAB
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs import diff
from kproxy.proxy.backends.ipvs.diff import (
    ChangeAddresses,
    ChangeMembers,
    IpvsCommand,
    RemoveDestination,
    RemoveServer,
    ReplaceChains,
    SendCommands,
    SetDestination,
    SetServer,
    Step,
    Transaction,
    WriteInterimChains,
)
from kproxy.proxy.backends.ipvs.kernel import applier

NODE = LAB.hostnames["a"]

Arranged = Callable[[Iterable[Step]], Iterable[Step]]


def _servers_first(steps: Iterable[Step]) -> list[Step]:
    """As kube-proxy does it: virtual servers with their addresses, then ipsets, then chains."""
    ranks: tuple[type[Step], ...] = (
        SendCommands,
        ChangeAddresses,
        ChangeMembers,
        WriteInterimChains,
        ReplaceChains,
    )
    return sorted(steps, key=lambda step: ranks.index(type(step)))


def _final_chains_first(steps: Iterable[Step]) -> list[Step]:
    """Ours, but another mode's rules in chains of both modes go with the first chains."""
    found = list(steps)
    final = [step for step in found if isinstance(step, ReplaceChains)]
    return [final[-1] if isinstance(step, WriteInterimChains) else step for step in found]


ORDERS: dict[str, Arranged] = {
    "ours": lambda steps: steps,
    "servers-first": _servers_first,
    "final-chains-first": _final_chains_first,
}


def parts(step: Step) -> Iterator[Step]:
    """A step in parts that a client can distinguish; what is done alike to different Services stays together."""
    match step:
        case SendCommands(orders):
            for _, alike in groupby(sorted(orders, key=_kind), _kind):
                yield SendCommands(tuple(alike))
        case ChangeMembers(family, removed, added):
            for _, group in groupby(removed, lambda member: member.set):
                yield ChangeMembers(family, tuple(group), ())
            for _, group in groupby(added, lambda member: member.set):
                yield ChangeMembers(family, (), tuple(group))
        case ChangeAddresses() | WriteInterimChains() | ReplaceChains():
            yield step


def _kind(order: IpvsCommand) -> int:
    """What serves more comes before what serves less.

    A virtual server comes with its destinations: for the kernel these are several messages, one after the other, and
    in between it refuses.
    """
    match order:
        case SetServer():
            return 0
        case SetDestination(weight=weight):
            return 0 if weight else 1
        case RemoveDestination():
            return 2
        case RemoveServer():
            return 3


def _taken_apart(arranged: Arranged) -> Callable[..., Transaction]:
    def transaction(*arguments: object) -> Transaction:
        todo = diff.transaction(*arguments)  # type: ignore[arg-type]
        return replace(todo, steps=tuple(part for step in arranged(todo.steps) for part in parts(step)))

    return transaction


def _waiting(path: str, node: str) -> Callable[[applier.IpvsKernel, Step], None]:
    do = applier.IpvsKernel._execute

    def wait_and_do(kernel: applier.IpvsKernel, step: Step) -> None:
        if kernel._family is Family.IPV4 and node == NODE:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(path)
                line.sendall(str(step).encode() + b"\0")
                line.recv(1)
        do(kernel, step)

    return wait_and_do


if __name__ == "__main__":
    _, name, where, node, *arguments = sys.argv
    with (
        mock.patch.object(applier, "transaction", _taken_apart(ORDERS[name])),
        mock.patch.object(applier.IpvsKernel, "_execute", _waiting(where, node)),
    ):
        sys.exit(main(arguments))
