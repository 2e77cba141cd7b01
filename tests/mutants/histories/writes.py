"""Histories: writes in the wrong order, and what was known of the kernel taken for what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kproxy.linux.host import HostError
from tests.mutants.mutant import Function, Mutant, Patch, Wrap, in_ipvs, in_nftables, mutant

NFTABLES = "kproxy.proxy.backends.nftables."
IPVS = "kproxy.proxy.backends.ipvs."


def _deletions_first(_: Function) -> Function:
    """Elements that change are deleted in one transaction and added in the next."""

    def batches(self: Any) -> Any:  # noqa: ANN401
        from kproxy.proxy.backends.nftables.commands import DeleteElements  # noqa: PLC0415

        switch = list(self._switch())
        yield list(self._new_chains())
        yield [command for command in switch if isinstance(command, DeleteElements)]
        yield [command for command in switch if not isinstance(command, DeleteElements)]

    return batches


def _steps(edit: Function) -> Wrap:
    """A wrap of `transaction` of ipvs mode that changes the steps of an update."""

    def wrap(transaction: Function) -> Function:
        def made(*of: Any) -> Any:  # noqa: ANN401
            found = transaction(*of)
            return replace(found, steps=tuple(edit(list(found.steps))))

        return made

    return wrap


def _addresses_first(steps: list[Any]) -> list[Any]:
    return sorted(steps, key=lambda step: not getattr(step, "bind", False))


def _addresses_last(steps: list[Any]) -> list[Any]:
    return sorted(steps, key=lambda step: getattr(step, "bind", None) is False)


def _members_last(steps: list[Any]) -> list[Any]:
    return sorted(steps, key=lambda step: type(step).__name__ == "ChangeMembers")


def _removals_first(steps: list[Any]) -> list[Any]:
    """Destinations and virtual servers go, or get no new connections, in one write, and others come in the next."""

    def comes(command: Any) -> bool:  # noqa: ANN401
        return "Remove" not in type(command).__name__ and getattr(command, "weight", 1) != 0

    def divided(step: Any) -> list[Any]:  # noqa: ANN401
        if type(step).__name__ != "SendCommands":
            return [step]
        parts = [c for c in step.commands if not comes(c)], [c for c in step.commands if comes(c)]
        return [replace(step, commands=tuple(part)) for part in parts if part]

    return [part for step in steps for part in divided(step)]


def _drained_stays(additions: Function) -> Function:
    """A destination that comes back while its connections drain gets no new ones."""

    def added(self: Any) -> Any:  # noqa: ANN401
        return (command for command in additions(self) if getattr(command, "new", True))

    return added


def _keeps_picture(reading: Function) -> Function:
    """What is known of the kernel is not read again after a failure."""

    def read(self: Any, desired: Any) -> Any:  # noqa: ANN401
        return self._actual if self._actual.servers else reading(self, desired)

    return read


def _records_first(_: Function) -> Function:
    """Commands are taken for done when they are sent."""

    def send(self: Any, orders: Any) -> None:  # noqa: ANN401
        from kproxy.proxy.backends.ipvs.kernel.applier import _record_command  # noqa: PLC0415

        for order in orders:
            _record_command(self._actual, order)
        self._ipvs.send(orders, self._family)

    return send


def _lock_is_done(restore: Function) -> Function:
    """A tool that did not get the lock in time is taken to have written."""

    def restoring(self: Any, *of: Any, **more: Any) -> None:  # noqa: ANN401
        try:
            restore(self, *of, **more)
        except HostError as error:
            if "lock" not in str(error):
                raise

    return restoring


MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "history.lock-is-done",
        "A write that did not get the lock of iptables is taken for done.",
        Patch("kproxy.proxy.backends.xtables.kernel.tools:Tools.restore", _lock_is_done),
    ),
    in_nftables(
        "history.deletions-first",
        "Elements that change are deleted in one transaction and added in the next.",
        Patch(f"{NFTABLES}diff:Update.batches", _deletions_first),
    ),
    in_ipvs(
        "history.addresses-first",
        "Addresses are bound before there is a virtual server behind them.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_addresses_first)),
    ),
    in_ipvs(
        "history.addresses-last",
        "Addresses are unbound when there is no virtual server behind them any more.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_addresses_last)),
    ),
    in_ipvs(
        "history.guards-last",
        "What restricts a virtual server comes after it.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_members_last)),
    ),
    in_ipvs(
        "history.removals-first",
        "Destinations go in one write, and others come in the next.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_removals_first)),
    ),
    in_ipvs(
        "history.drained-stays",
        "An endpoint that comes back while its connections drain gets no new ones.",
        Patch(f"{IPVS}diff:_ServerCommands.additions", _drained_stays),
    ),
    in_ipvs(
        "history.picture-ahead",
        "After a failed write what it would have done to IPVS is taken for done.",
        Patch(f"{IPVS}kernel.applier:IpvsKernel._read", _keeps_picture),
        Patch(f"{IPVS}kernel.applier:IpvsKernel._send", _records_first),
    ),
)
