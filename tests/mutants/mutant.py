"""A mutant: the proxy with one defect, made by patching it from outside.

Production code does not depend on this.  A mutant is applied to a whole process (``tests.mutants.proxy``)
or, for the simulator and for unit tests, to this one for a while.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

Function = Callable[..., Any]
Wrap = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """Replaces an attribute by ``wrap(attribute)``.

    ``where``: ``package.module:name`` or ``package.module:Class.name``, of the module that *uses* it.
    """

    where: str
    wrap: Wrap


@dataclass(frozen=True, slots=True)
class Unseen:
    """Reason why no case can show the mutant, and the test (a pytest node) that must fail instead."""

    why: str
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One defect.

    ``clauses``: a case that fails must cite one of them.  ``needs_kernel``: neither rules walked in
    memory nor a test without root can show it.  ``mode``: the proxy's.
    """

    name: str
    about: str
    patches: tuple[Patch, ...]
    clauses: frozenset[str] = frozenset()
    needs_kernel: bool = False
    unseen: Unseen | None = None
    mode: str = "iptables"


def mutant(name: str, about: str, *patches: Patch, clauses: str = "", **fields: Any) -> Mutant:  # noqa: ANN401
    """Shorthand: ``clauses`` separated by blanks."""
    return Mutant(name=name, about=about, patches=patches, clauses=frozenset(clauses.split()), **fields)


in_nftables = partial(mutant, mode="nftables")
in_ipvs = partial(mutant, mode="ipvs")
in_userspace = partial(mutant, mode="userspace")


@contextmanager
def applied(wrong: Mutant) -> Iterator[None]:
    """The mutant in this process, until the block ends."""
    with ExitStack() as stack:
        for patch in wrong.patches:
            stack.enter_context(patched(patch))
        yield


def patched(patch: Patch) -> mock._patch[Any]:
    """One patch, as a context."""
    owner, name = owner_and_name(patch)
    return mock.patch.object(owner, name, patch.wrap(getattr(owner, name)))


def owner_and_name(patch: Patch) -> tuple[Any, str]:
    """The module or class that is patched, and the attribute."""
    module, _, path = patch.where.partition(":")
    above, _, name = path.rpartition(".")
    return pkgutil.resolve_name(f"{module}:{above}"), name


def instead(function: Function) -> Wrap:
    """A wrap that replaces the function."""
    return lambda _: function


def answering(value: object) -> Wrap:
    """A wrap that makes the function return one value for all arguments."""
    return lambda _: lambda *_args, **_kwargs: value
