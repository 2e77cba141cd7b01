"""Rules of iptables mode that count packets, and the metrics that report them (``met.nfacct-optional``)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kproxy.lab import namespaces
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.topology import LAB
from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.kernel import (
    IptablesKernel,
    Tools,
    Variant,
    find_tools,
    machine_options,
    nfacct,
    without_broken_counters,
)
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.rules import PacketCounter
from kproxy.proxy.daemon.sync.dataplane import remove_all_modes
from tests.support.daemon_stage import LOOPBACK, balanced, endpoints, stage
from tests.support.numbered_plans import numbered, plan

INVALID = "iptables_ct_state_invalid_dropped_packets_total"
LOCALHOST = "iptables_localhost_nodeports_accepted_packets_total"
NOTHING: frozenset[tuple[str, str]] = frozenset()
INVALID_RULES = 2
"""One for what is forwarded, one for what is for the node."""
MANY = 50


@pytest.fixture(params=list(Variant), ids=lambda variant: variant.value)
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tools]:
    namespace = namespaces.create_namespace("counters")
    with namespace.entered():
        yield find_tools(Family.IPV4, request.param, {"XTABLES_LOCKFILE": str(tmp_path / "lock")})
    namespace.close()


def counting_rules(tools: Tools) -> list[str]:
    return [line for line in host.run_tool((f"{tools.command}-save",)).splitlines() if "nfacct" in line]


def test_rules_count_and_are_found_again(tools: Tools) -> None:
    options = machine_options(tools, 14)
    assert options.counters == set(PacketCounter)
    kernel = IptablesKernel(tools)
    for services in ((1,), (1, 2), (2,)):
        kernel.apply(plan(Family.IPV4, *(numbered(Family.IPV4, n, 1) for n in services)), options)
        assert len(counting_rules(tools)) == INVALID_RULES + len(services)
        assert kernel.find_drift() == ()
    assert nfacct.read_packet_counts() == dict.fromkeys(PacketCounter, 0)


def test_counters_that_another_program_removed_are_made_again_with_the_rules(tools: Tools) -> None:
    options = machine_options(tools, 14)
    kernel = IptablesKernel(tools)
    wanted = plan(Family.IPV4, numbered(Family.IPV4, 1, 1))
    kernel.apply(wanted, options)
    for table in ("filter", "nat"):
        host.run_tool((tools.command, "-t", table, "-F"))
    nfacct.delete_counters()
    assert nfacct.read_packet_counts() == {}
    assert kernel.find_drift()
    kernel.forget()
    kernel.apply(wanted, options)
    assert len(counting_rules(tools)) == INVALID_RULES + 1


def test_a_counter_that_rules_use_stays_and_cleanup_leaves_none(tools: Tools) -> None:
    options = machine_options(tools, 14)
    IptablesKernel(tools).apply(plan(Family.IPV4, numbered(Family.IPV4, 1, 1)), options)
    nfacct.delete_counters()
    assert set(nfacct.read_packet_counts()) == set(PacketCounter)
    assert remove_all_modes() == ()
    assert nfacct.read_packet_counts() == {}


def test_where_no_rule_can_count_none_does(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    options = machine_options(tools, 14)
    assert without_broken_counters(tools, options) == options
    assert names.TRIAL not in host.run_tool((f"{tools.command}-save",))
    monkeypatch.setattr(nfacct, "create_counters", frozenset)
    nfacct.delete_counters()  # as if the kernel had the counters and not the match
    kernel = IptablesKernel(tools)
    wanted = plan(Family.IPV4, numbered(Family.IPV4, 1, 1))
    with pytest.raises(HostError):
        kernel.apply(wanted, options)
    assert without_broken_counters(tools, options) == Options(
        options.masquerade_mark, random_fully=options.random_fully, drop_invalid=options.drop_invalid
    )


def test_a_trial_that_could_not_be_removed_goes_with_the_next_write_or_the_cleanup(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = machine_options(tools, 14)
    restore, written = Tools.restore, []

    def refuse_all_but_the_first(of: Tools, blocks: Iterable[Block]) -> None:
        written.append(blocks)
        if len(written) > 1:
            raise HostError("iptables-restore", "memory allocation problem", Reason.OTHER)
        restore(of, blocks)

    def tables_after_a_trial() -> str:
        with monkeypatch.context() as patched:
            written.clear()
            patched.setattr(Tools, "restore", refuse_all_but_the_first)
            without_broken_counters(tools, options)
        return host.run_tool((f"{tools.command}-save",))

    assert names.TRIAL in tables_after_a_trial()
    IptablesKernel(tools).apply(plan(Family.IPV4, numbered(Family.IPV4, 1, 1)), options)
    assert names.TRIAL not in host.run_tool((f"{tools.command}-save",))
    assert names.TRIAL in tables_after_a_trial()
    assert remove_all_modes() == ()
    assert names.TRIAL not in host.run_tool((f"{tools.command}-save",))


def test_that_nothing_can_be_written_is_no_sign_of_broken_counters(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = machine_options(tools, 14)

    def refuse(*_: object) -> None:
        raise HostError("iptables-restore", "no buffer space available", Reason.OTHER)

    monkeypatch.setattr(Tools, "restore", refuse)
    assert without_broken_counters(tools, options) == options
    assert options.counters


def test_packets_to_node_ports_of_loopback_and_invalid_ones_are_counted() -> None:
    async def count() -> None:
        async with stage("iptables") as on:
            on.lab.servers.serve(on.lab.network["a1"], 8080, Protocol.TCP, "a1")
            on.put(balanced(), endpoints("a1"))
            await on.answers(200)
            before = await on.metrics()
            assert before[LOCALHOST, NOTHING] == 0
            node = LAB.node_address["a"][Family.IPV4]
            for sender, destination in (("a", LOOPBACK), ("client", node)):
                requested = ProbeRequest(sender=sender, destination=destination, port=30001, patience=3.0)
                assert isinstance(await on.lab.probe(requested), Answered)
            for _ in range(MANY):
                send_without_flags(on.lab.network["client"], LAB.pod_address["a1"][Family.IPV4])
            after = await on.metrics()
            assert after[LOCALHOST, NOTHING] == 1
            # the last segments of closed connections of the node may be invalid too
            assert MANY <= after[INVALID, NOTHING] - before[INVALID, NOTHING] < 2 * MANY

    asyncio.run(count())


def send_without_flags(namespace: namespaces.Namespace, to: object) -> None:
    """A TCP segment with no flag set, which belongs to no connection and begins none."""
    segment = struct.pack(">HHIIBBHHH", 40000, 8080, 0, 0, 5 << 4, 0, 1024, 0, 0)
    with namespace.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.sendto(segment, (str(to), 0))
