"""Chains as the tools list them: one that does not exist has no rules, and one that cannot be listed is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.linux.host import HostError
from kproxy.model.network import Family
from kproxy.proxy.backends.xtables.kernel.jumps import list_chain_rules
from kproxy.proxy.backends.xtables.kernel.tools import Tools, Variant
from kproxy.proxy.backends.xtables.rules import TableName


def listed(folder: Path, script: str) -> list[str]:
    """Rules of KUBE-X by a tool that does this."""
    tool = folder / "iptables"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return list_chain_rules(Tools(Family.IPV4, str(tool), Variant.NFT, (1, 8, 9)), TableName.FILTER, "KUBE-X")


def test_a_chain_that_does_not_exist_has_no_rules(tmp_path: Path) -> None:
    assert listed(tmp_path, "echo '-N KUBE-X'; echo '-A KUBE-X -j DROP'") == ["-j DROP"]
    message = "chain 'KUBE-X' in table 'filter' is incompatible, use 'nft' tool."
    assert listed(tmp_path, f'echo "{message}" >&2; exit 1') == []


def test_a_chain_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="Cannot allocate memory"):
        listed(tmp_path, "echo 'sendmsg() failed: Cannot allocate memory' >&2; exit 1")
