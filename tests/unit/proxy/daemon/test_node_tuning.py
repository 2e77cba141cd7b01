"""What is set on the node: computed here, written to a machine that is made up (tests/netns has a real kernel)."""

import logging

import pytest

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.proxy.daemon import node_tuning
from kproxy.proxy.daemon.config.configuration import Configuration, ConntrackSection, IPTables
from kproxy.proxy.daemon.config.duration import Duration

PREFIX = "net/netfilter/nf_conntrack_"


@pytest.mark.parametrize(
    ("per_core", "least", "cores", "limit"),
    [
        (0, 131_072, 8, 0),
        (32_768, 131_072, 2, 131_072),
        (32_768, 131_072, 8, 262_144),
        (32_768, 131_072, 32, 1_048_576),
        (32_768, 131_072, 256, 1_048_576),
        (32_768, 0, 1, 32_768),
        (100, 2_000_000, 2, 2_000_000),
    ],
)
def test_the_limit_is_by_core_within_bounds(per_core: int, least: int, cores: int, limit: int) -> None:
    assert node_tuning.conntrack_max(ConntrackSection(max_per_core=per_core, min=least), cores) == limit


def test_zero_leaves_a_setting_to_the_kernel() -> None:
    nothing = ConntrackSection(
        max_per_core=0, tcp_established_timeout=Duration(), tcp_close_wait_timeout=Duration()
    )
    assert list(node_tuning.conntrack_sysctls(nothing, 4)) == []


def test_every_setting_has_its_sysctl() -> None:
    config = ConntrackSection(
        max_per_core=1000,
        min=1,
        tcp_established_timeout=Duration.of(1.9),
        tcp_close_wait_timeout=Duration.of(2),
        tcp_be_liberal=True,
        udp_timeout=Duration.of(0.5),
        udp_stream_timeout=Duration.of(4),
    )
    assert {name.removeprefix(PREFIX): value for name, value in node_tuning.conntrack_sysctls(config, 4)} == {
        "max": 4000,
        "tcp_timeout_established": 1,
        "tcp_timeout_close_wait": 2,
        "tcp_be_liberal": 1,
        "udp_timeout": 1,
        "udp_timeout_stream": 4,
    }


class Machine:
    """Sysctls and files as a dictionary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
        self.files = dict(files)
        self.written: list[str] = []
        self.ran: list[tuple[str, ...]] = []
        monkeypatch.setattr(host, "write_sysctl", self.write)
        monkeypatch.setattr(host, "write_file", self.write)
        monkeypatch.setattr(host, "read_file", lambda name: self.files[name])
        monkeypatch.setattr(host, "run_tool", self.run)

    def write(self, name: str, value: str) -> None:
        if name not in self.files:
            raise HostError(f"write {name}", "No such file or directory", Reason.MISSING)
        self.files[name] = value
        self.written.append(name)

    def run(self, argv: tuple[str, ...]) -> str:
        self.ran.append(argv)
        if "nf_conntrack" in argv:
            self.files[PREFIX + "udp_timeout"] = "30"
        return ""


HASH = "/sys/module/nf_conntrack/parameters/hashsize"
SCORE = "/proc/self/oom_score_adj"


@pytest.mark.parametrize(("buckets", "expected"), [("16384", "250000"), ("262144", "262144")])
def test_the_hash_table_grows_with_the_limit_and_never_shrinks(
    monkeypatch: pytest.MonkeyPatch, buckets: str, expected: str
) -> None:
    machine = Machine(monkeypatch, **{PREFIX + "max": "1", HASH: buckets})
    node_tuning.set_conntrack(
        ConntrackSection(
            max_per_core=1,
            min=1_000_000,
            tcp_established_timeout=Duration(),
            tcp_close_wait_timeout=Duration(),
        )
    )
    assert machine.files == {PREFIX + "max": "1000000", HASH: expected}


ONE = ConntrackSection(
    max_per_core=0,
    tcp_established_timeout=Duration(),
    tcp_close_wait_timeout=Duration(),
    udp_timeout=Duration.of(9),
)


def test_connection_tracking_that_is_not_loaded_is_requested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    node_tuning.set_conntrack(ONE)
    assert machine.ran == [("modprobe", "--", "nf_conntrack")]
    assert machine.files[PREFIX + "udp_timeout"] == "9"


def test_a_kernel_without_connection_tracking_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    monkeypatch.setattr(host, "run_tool", machine.ran.append)
    with pytest.raises(HostError):
        node_tuning.set_conntrack(ONE)


def test_a_limit_that_may_not_be_written_names_what_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, value: str) -> None:
        raise HostError(f"write sysctl {name}={value}", "Permission denied", Reason.DENIED)

    Machine(monkeypatch, **{PREFIX + "max": "1", HASH: "1"})
    monkeypatch.setattr(host, "write_sysctl", refuse)
    with pytest.raises(HostError, match=r"nf_conntrack_max=.*conntrack: \{maxPerCore: 0, min: 0\}"):
        node_tuning.set_conntrack(ConntrackSection())
    with pytest.raises(HostError, match="Permission denied") as caught:
        node_tuning.set_conntrack(ConntrackSection(max_per_core=0))
    assert "maxPerCore" not in str(caught.value), "it is no limit that is refused"


def test_an_oom_score_that_is_right_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, **{SCORE: "-999\n"})
    node_tuning.set_oom_score(-999)
    assert machine.written == []
    node_tuning.set_oom_score(-998)
    assert machine.written == [SCORE]


@pytest.mark.parametrize(
    ("reason", "level"), [(Reason.OTHER, logging.WARNING), (Reason.DENIED, logging.INFO)]
)
def test_a_refused_oom_score_is_logged_and_lived_with(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: Reason, level: int
) -> None:
    """Denied is what every container without CAP_SYS_RESOURCE is: no warning at each start of a pod."""
    caplog.set_level(logging.INFO)

    def refuse(path: str, text: str) -> None:
        raise HostError(f"write {path}", f"Permission denied: {text}", reason)

    monkeypatch.setattr(host, "read_file", lambda _: "0")
    monkeypatch.setattr(host, "write_file", refuse)
    node_tuning.set_oom_score(-999)
    assert "oom_score_adj is not -999" in caplog.text
    assert [record.levelno for record in caplog.records] == [level]


@pytest.mark.parametrize(
    ("addresses", "routed"),
    [
        ((), True),
        (("127.0.0.0/8",), True),
        (("127.0.0.1/32",), True),
        (("0.0.0.0/0",), True),
        (("10.0.0.0/8", "::1/128"), False),
        (("primary",), False),
        (("126.0.0.0/8",), False),
        (("128.0.0.0/1",), False),
    ],
)
def test_loopback_is_routed_where_it_takes_node_ports(addresses: tuple[str, ...], routed: bool) -> None:  # noqa: FBT001 - a table
    assert node_tuning.routes_loopback(Configuration(node_port_addresses=addresses)) is routed


def test_loopback_takes_node_ports_in_iptables_mode_alone_and_where_it_is_not_switched_off() -> None:
    assert node_tuning.routes_loopback(Configuration())
    assert not node_tuning.routes_loopback(Configuration(iptables=IPTables(localhost_node_ports=False)))
    for mode in ("ipvs", "nftables"):
        assert not node_tuning.routes_loopback(Configuration(mode=mode))
