"""What is queried of a live node where more than one way leads to an answer."""

from __future__ import annotations

import shutil

import pytest

from kproxy.linux.netfilter.sources import SourceKind
from kproxy.tools.trace import live

HEAD = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n"


def proc(servers: int) -> str:
    return HEAD + "".join(f"TCP  0A6004{number:02X}:0050 rr  \n" for number in range(servers))


@pytest.mark.parametrize(("servers", "problems_reported"), [(3, 0), (200, 1)])
def test_without_ipvsadm_a_long_list_of_virtual_servers_is_reported_to_lack_some(
    servers: int, problems_reported: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels leave some out where the file has several pages."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(live, "_file", lambda _: proc(servers))
    problems: list[str] = []
    (source,) = live._virtual_servers(problems)
    assert source.kind is SourceKind.IPVS_PROC
    assert ["install ipvsadm" in one for one in problems] == [True] * problems_reported


def test_where_the_kernel_has_no_ipvs_nothing_is_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query would load the module."""
    monkeypatch.setattr(live, "_file", lambda _: "")
    monkeypatch.setattr(live, "run_tool", lambda _: pytest.fail("a command was run"))
    assert list(live._virtual_servers([])) == []
