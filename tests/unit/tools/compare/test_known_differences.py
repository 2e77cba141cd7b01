"""Which differences are intended: only what is documented of both modes, and lawful."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import Failure
from kproxy.tools.compare.known_differences import DOCUMENTED_DIFFERENCES, documented_difference
from tests.support.copied_cases import ONE, OTHER, delivered, held

OTHER_ADDRESSES = "node-port.addresses.default-not-primary.either"
UNDEFINED = "cluster-ip.undefined-port.not-served"


def test_what_is_unlawful_is_not_intended_though_its_kind_is_documented() -> None:
    stray = delivered(OTHER)
    found = held(stray, Failure.UNTOUCHED, delivered(ONE), Failure.UNTOUCHED, clauses=(OTHER_ADDRESSES,))
    assert found is not None
    assert documented_difference(found, ("iptables", "nftables")) is None
    lawful = held(
        delivered(ONE), Failure.UNTOUCHED, delivered(ONE), Failure.UNTOUCHED, clauses=(OTHER_ADDRESSES,)
    )
    assert lawful is not None
    assert documented_difference(lawful, ("iptables", "nftables")) is not None, "the control"


@pytest.mark.parametrize(
    ("one", "other", "clauses", "modes", "known"),
    [
        (Failure.UNTOUCHED, Failure.REJECTED, (UNDEFINED,), ("iptables", "nftables"), True),
        (Failure.REJECTED, Failure.UNTOUCHED, (UNDEFINED,), ("nftables", "iptables"), True),
        (Failure.UNTOUCHED, Failure.REJECTED, (UNDEFINED,), ("userspace", "nftables"), True),
        (Failure.REJECTED, Failure.UNTOUCHED, (UNDEFINED,), ("userspace", "nftables"), False),
        (Failure.REJECTED, Failure.UNTOUCHED, (UNDEFINED,), ("iptables", "nftables"), False),
        (Failure.UNTOUCHED, Failure.DROPPED, (UNDEFINED,), ("iptables", "nftables"), False),
        (Failure.UNTOUCHED, Failure.REJECTED, (), ("iptables", "nftables"), False),
        (Failure.UNTOUCHED, Failure.REJECTED, (UNDEFINED,), ("iptables", "ebpf"), False),
    ],
)
def test_a_difference_is_intended_only_if_both_do_what_is_written_of_their_modes(
    one: Failure, other: Failure, clauses: tuple[Any, ...], modes: tuple[str, str], *, known: bool
) -> None:
    found = held(one, other, one, other, clauses=clauses)
    assert found is not None
    assert (documented_difference(found, modes) is not None) is known


@pytest.mark.parametrize("entry", DOCUMENTED_DIFFERENCES, ids=lambda entry: entry.id)
def test_a_documented_difference_names_clauses_that_exist_and_where_it_is_written(entry: Any) -> None:  # noqa: ANN401
    assert entry.clauses <= set(CLAUSES)
    assert entry.links
    assert all(link.startswith("https://") for link in entry.links)


def test_documented_differences_have_names_of_their_own() -> None:
    names = [entry.id for entry in DOCUMENTED_DIFFERENCES]
    assert len(names) == len(set(names))
