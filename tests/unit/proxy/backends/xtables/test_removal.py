"""Chains that the tools cannot list: none where the kernel lacks the variant, a failure where it has tables of it."""

from __future__ import annotations

import pytest

from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends.xtables.kernel import removal
from kproxy.proxy.backends.xtables.kernel.tools import Tools, Variant
from kproxy.proxy.backends.xtables.rules import ChainName, TableName

DENIED = HostError("iptables-legacy-save", "Cannot initialize: Permission denied", Reason.UNSUPPORTED)


class Unreadable(Tools):
    """Tools of a process without CAP_NET_RAW, or for a kernel without the variant: both fail so."""

    def chains(self) -> dict[TableName, frozenset[ChainName]]:
        raise DENIED


TOOLS = Unreadable(Family.IPV4, "iptables-legacy", Variant.LEGACY, (1, 8, 9))


def test_without_tables_in_the_kernel_there_is_nothing_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "list_chains_by_netlink", lambda *_: {})
    assert removal.remove_chains(TOOLS, TableName.NAT, lambda *_: True) == 0


def test_tables_that_cannot_be_read_are_no_empty_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "list_chains_by_netlink", lambda *_: None)
    with pytest.raises(HostError, match="NET_RAW") as error:
        removal.remove_chains(TOOLS, TableName.NAT, lambda *_: True)
    assert error.value.reason is Reason.DENIED
