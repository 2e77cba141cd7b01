"""The seam to the machine reports what went wrong in a way code and people can use."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from tests.support.waiting import eventually


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_a_command_reads_what_it_is_given_and_its_output_comes_back() -> None:
    assert host.run_tool(python("print(input() + input())"), [b"a\n", b"b\n"]) == "ab\n"


def test_the_environment_is_added_to_our_own() -> None:
    code = "import os; print(os.environ['EXTRA'], 'PATH' in os.environ)"
    assert host.run_tool(python(code), environment={"EXTRA": "1"}) == "1 True\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Another app is currently holding the xtables lock; waiting for it to exit...", Reason.BUSY),
        ("iptables: Resource temporarily unavailable.", Reason.BUSY),
        ("CHAIN_DEL failed (Device or resource busy): chain KUBE-SVC-X", Reason.BUSY),
        ("iptables: Chain already exists.", Reason.EXISTS),
        ("RTNETLINK answers: File exists", Reason.EXISTS),
        ("iptables: No chain/target/match by that name.", Reason.MISSING),
        ("iptables: Bad rule (does a matching rule exist in that chain?).", Reason.MISSING),
        ("Error: Could not process rule: No such file or directory", Reason.MISSING),
        (
            "iptables v1.8.9 (nf_tables): chain `X' in table `nat' is incompatible, use 'nft' tool.",
            Reason.MISSING,
        ),
        ("TABLE_ADD failed (Operation not supported): table nat", Reason.UNSUPPORTED),
        ("iptables v1.8.9 (nf_tables): Couldn't load match `nfacct'", Reason.UNSUPPORTED),
        ("Couldn't load target `KUBE-SERVICES':No such file or directory", Reason.MISSING),
        ("iptables-restore: line 3 failed", Reason.OTHER),
    ],
)
def test_the_messages_of_the_tools_have_reasons(text: str, reason: Reason) -> None:
    with pytest.raises(HostError) as caught:
        host.run_tool(python(f"import sys; sys.exit({text!r})"))
    assert caught.value.reason is reason
    assert text in str(caught.value)
    assert sys.executable in str(caught.value), "the command line is part of the message"


def test_a_command_that_is_not_there_is_unsupported() -> None:
    with pytest.raises(HostError, match="kproxy-no-such-command") as caught:
        host.run_tool(("kproxy-no-such-command",))
    assert caught.value.reason is Reason.UNSUPPORTED


def test_a_command_that_does_not_start_is_not_replaced_by_another_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first" / "tool", tmp_path / "second" / "tool"
    for tool, text in ((first, "not a program"), (second, "#!/bin/sh\necho second\n")):
        tool.parent.mkdir()
        tool.write_text(text)
        tool.chmod(0o755)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{second.parent}:{first.parent}:{path}")
    assert host.run_tool(("tool",)) == "second\n"
    monkeypatch.setenv("PATH", f"{first.parent}:{second.parent}:{path}")
    with pytest.raises(HostError, match="Exec format error"):
        host.run_tool(("tool",))


def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(HostError) as caught:
        host.run_tool(python("import time; time.sleep(30)"), timeout=0.2)
    assert caught.value.reason is Reason.TIMEOUT


def test_a_command_that_stops_reading_reports_why() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    with pytest.raises(HostError, match="enough"):
        host.run_tool(python("import sys; sys.exit('enough')"), endless())


def test_a_failure_while_making_the_input_ends_the_command_and_comes_through() -> None:
    def broken() -> Iterator[bytes]:
        yield b"first\n"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        host.run_tool(python("import sys; sys.stdin.read()"), broken())


def test_a_detached_program_that_ends_leaves_no_zombie() -> None:
    def children() -> set[str]:
        return set(Path("/proc/thread-self/children").read_text().split())

    before = children()
    host.start_detached(("/bin/sleep", "0.3"))
    assert children() - before
    assert eventually(lambda: not children() - before)


def test_a_sysctl_that_is_not_there_is_missing() -> None:
    assert host.read_sysctl("kernel/ostype") == "Linux"
    with pytest.raises(HostError) as caught:
        host.read_sysctl("net/ipv4/no_such_thing")
    assert caught.value.reason is Reason.MISSING


UNPRIVILEGED_BATCH = """
import os, socket
from kproxy.linux import host
from kproxy.linux.conntrack import delete_flows
from kproxy.linux.netlink import NetlinkFlag, netfilter_header
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
with Netlink(NETLINK_NETFILTER) as netlink:
    try:
        netlink.send_all([(7 << 8, NetlinkFlag.CREATE, netfilter_header(0))] * 3)
    except host.HostError as error:
        print(error)
"""


def test_a_batch_that_the_kernel_refuses_as_a_whole_is_an_error_at_once() -> None:
    """nfnetlink answers a batch of a process without CAP_NET_ADMIN once (net/netfilter/nfnetlink.c: nfnetlink_rcv)."""
    printed = host.run_tool(python(UNPRIVILEGED_BATCH), timeout=20.0)
    assert "Operation not permitted" in printed
    assert "CAP_NET_ADMIN" in printed
