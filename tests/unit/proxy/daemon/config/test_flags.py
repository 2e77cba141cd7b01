"""A command line as kube-proxy reads it, and the configuration it makes, with a file and without."""

import pytest

from kproxy.proxy.daemon.config.configuration import Configuration, with_addresses
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.feature_gates import FEATURE_GATES, gate_enabled
from kproxy.proxy.daemon.config.flag_table import (
    ACTIONS,
    FLAGS,
    IGNORED,
    LOGGING,
    REMOVED_FLAGS,
    ROWS,
    SETTINGS,
)
from kproxy.proxy.daemon.config.flags import FlagError, ParsedFlags, flag_usage, parse_flags
from kproxy.proxy.daemon.config.load import InvalidConfiguration, load_configuration
from kproxy.proxy.daemon.config.resolve import resolve, unwritable_fields
from kproxy.proxy.daemon.config.write import configuration_document, to_yaml

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def given(*arguments: str) -> ParsedFlags:
    return parse_flags(arguments, FLAGS, REMOVED_FLAGS)


def resolved(*arguments: str, file: str | None = None) -> Configuration:
    return resolve(given(*arguments), None if file is None else (HEAD + file).encode()).config


def complaints(*arguments: str) -> tuple[str, ...]:
    with pytest.raises(FlagError) as raised:
        given(*arguments)
    return raised.value.problems


# ------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--proxy-mode=nftables"], "proxy-mode", "nftables"),
        (["--proxy-mode", "nftables"], "proxy-mode", "nftables"),
        (["--proxy_mode=nftables"], "proxy-mode", "nftables"),
        (["--proxy-mode=ipvs", "--proxy-mode=iptables"], "proxy-mode", "iptables"),
        (["--hostname-override="], "hostname-override", ""),
        (["-v4"], "v", 4),
        (["-v=4"], "v", 4),
        (["-v", "4"], "v", 4),
        (["--v=4"], "v", 4),
        (["--conntrack-min=0x10"], "conntrack-min", 16),
        (["--conntrack-min=010"], "conntrack-min", 8),
        (["--oom-score-adj", "-998"], "oom-score-adj", -998),
        (["--masquerade-all"], "masquerade-all", True),
        (["--masquerade-all=false"], "masquerade-all", False),
        (["--masquerade-all=T"], "masquerade-all", True),
        (["--kube-api-qps=2.5"], "kube-api-qps", 2.5),
        (["--iptables-sync-period=1m30s"], "iptables-sync-period", Duration.of(90)),
        (["--nodeport-addresses=10.0.0.0/8,fd00::/8"], "nodeport-addresses", ("10.0.0.0/8", "fd00::/8")),
        (
            ["--nodeport-addresses=10.0.0.0/8", "--nodeport-addresses=fd00::/8"],
            "nodeport-addresses",
            ("10.0.0.0/8", "fd00::/8"),
        ),
        (["--nodeport-addresses="], "nodeport-addresses", ()),
        (["--feature-gates=A=true,B=false"], "feature-gates", {"A": True, "B": False}),
        (["--feature-gates=A=true", "--feature-gates=A=false"], "feature-gates", {"A": False}),
        (["--vmodule=store=4,watch*=9"], "vmodule", {"store": 4, "watch*": 9}),
        (["--version"], "version", "true"),
        (["--version=raw"], "version", "raw"),
        (["--version=false"], "version", ""),
    ],
)
def test_a_flag_is_read_as_pflag_reads_it(arguments: list[str], name: str, value: object) -> None:
    assert given(*arguments).values == {name: value}


def test_a_switch_takes_no_value_from_the_next_word() -> None:
    assert complaints("--masquerade-all", "false") == ("'false': takes no arguments, only flags",)


@pytest.mark.parametrize("arguments", [("node",), ("--", "--cleanup"), ("-",)])
def test_arguments_that_are_no_flags_are_refused(arguments: tuple[str, ...]) -> None:
    (complaint,) = complaints(*arguments)
    assert arguments[-1] in complaint


def test_an_empty_argument_is_let_pass_as_kube_proxy_does() -> None:
    assert given("", "--cleanup").is_set("cleanup")


def test_everything_that_is_wrong_with_a_command_line_is_reported_at_once() -> None:
    found = complaints(
        "--no-such", "x", "--oom-score-adj=high", "--masquerade-all=maybe", "--config-sync-period=15",
        "--feature-gates=A", "--conntrack-min=9999999999", "--kube-api-qps=q", "-x", "--vmodule=a=b", "--config",
    )  # fmt: skip
    assert [line.split(":")[0] for line in found] == [
        "unknown flag",
        "--oom-score-adj=high",
        "--masquerade-all=maybe",
        "--config-sync-period=15",
        "--feature-gates=A",
        "--conntrack-min=9999999999",
        "--kube-api-qps=q",
        "unknown flag",
        "--vmodule=a=b",
        "--config needs a value (string)",
    ]


@pytest.mark.parametrize("name", sorted(REMOVED_FLAGS))
def test_a_flag_that_is_gone_is_answered_with_what_replaces_it(name: str) -> None:
    (complaint,) = complaints(f"--{name}=1")
    assert complaint == f"--{name} is gone: {REMOVED_FLAGS[name]}"


@pytest.mark.parametrize("name", ["cleanup-ipvs", "udp-timeout", "proxy-port-range"])
def test_the_flags_that_1_18_had_and_today_has_not_are_known_as_gone(name: str) -> None:
    assert name in REMOVED_FLAGS
    assert name not in {flag.name for flag in FLAGS}


def test_a_deprecated_flag_works_and_reports_what_to_use() -> None:
    assert given("--healthz-port=1").warnings == ("--healthz-port is deprecated: use --healthz-bind-address",)


def test_usage_names_every_flag_that_is_not_deprecated() -> None:
    text = flag_usage(FLAGS)
    for flag in FLAGS:
        assert (f"--{flag.name} " in text or f"--{flag.name}\n" in text) != bool(flag.deprecated)


# ------------------------------------------------------------------------------- fields

# As https://kubernetes.io/docs/reference/command-line-tools-reference/kube-proxy/ pairs them with the file's fields.
PAIRS = [
    ("--feature-gates=AllowServiceExternalIPs=false", "featureGates: {AllowServiceExternalIPs: false}"),
    ("--kubeconfig=/k", "clientConnection: {kubeconfig: /k}"),
    ("--kube-api-content-type=a/b", "clientConnection: {contentType: a/b}"),
    ("--kube-api-burst=3", "clientConnection: {burst: 3}"),
    ("--kube-api-qps=2.5", "clientConnection: {qps: 2.5}"),
    ("--hostname-override=n1", "hostnameOverride: n1"),
    ("--bind-address=1.2.3.4", "bindAddress: 1.2.3.4"),
    ("--healthz-bind-address=1.2.3.4:5", "healthzBindAddress: 1.2.3.4:5"),
    ("--healthz-bind-address=1.2.3.4", "healthzBindAddress: 1.2.3.4"),
    ("--metrics-bind-address=1.2.3.4:5", "metricsBindAddress: 1.2.3.4:5"),
    ("--bind-address-hard-fail", "bindAddressHardFail: true"),
    ("--profiling", "enableProfiling: true"),
    ("--show-hidden-metrics-for-version=1.35", "showHiddenMetricsForVersion: '1.35'"),
    ("--proxy-mode=ipvs", "{mode: ipvs, ipvs: {minSyncPeriod: 1s}}"),
    ("--masquerade-all", "iptables: {masqueradeAll: true}"),
    ("--iptables-masquerade-bit=0", "iptables: {masqueradeBit: 0}"),
    ("--iptables-localhost-nodeports=false", "iptables: {localhostNodePorts: false}"),
    ("--iptables-sync-period=5s", "iptables: {syncPeriod: 5s}"),
    ("--iptables-min-sync-period=5s", "iptables: {minSyncPeriod: 5s}"),
    ("--ipvs-sync-period=5s", "ipvs: {syncPeriod: 5s}"),
    ("--ipvs-min-sync-period=5s", "ipvs: {minSyncPeriod: 5s}"),
    ("--ipvs-scheduler=sh", "ipvs: {scheduler: sh}"),
    ("--ipvs-exclude-cidrs=10.0.0.0/8", "ipvs: {excludeCIDRs: [10.0.0.0/8]}"),
    ("--ipvs-strict-arp", "ipvs: {strictARP: true}"),
    ("--nftables-affinity-clients=1000", "nftables: {affinityClients: 1000}"),
    ("--userspace-keep-sources=false", "userspace: {keepSources: false}"),
    ("--userspace-workers=3", "userspace: {workers: 3}"),
    ("--ipvs-tcp-timeout=5s", "ipvs: {tcpTimeout: 5s}"),
    ("--ipvs-tcpfin-timeout=5s", "ipvs: {tcpFinTimeout: 5s}"),
    ("--ipvs-udp-timeout=5s", "ipvs: {udpTimeout: 5s}"),
    ("--detect-local-mode=NodeCIDR", "detectLocalMode: NodeCIDR"),
    ("--pod-bridge-interface=cbr0", "detectLocal: {bridgeInterface: cbr0}"),
    ("--pod-interface-name-prefix=veth", "detectLocal: {interfaceNamePrefix: veth}"),
    ("--cluster-cidr=10.0.0.0/8,fd00::/8", "clusterCIDR: '10.0.0.0/8,fd00::/8'"),
    ("--nodeport-addresses=primary", "nodePortAddresses: [primary]"),
    ("--oom-score-adj=0", "oomScoreAdj: 0"),
    ("--conntrack-max-per-core=0", "conntrack: {maxPerCore: 0}"),
    ("--conntrack-min=0", "conntrack: {min: 0}"),
    ("--conntrack-tcp-timeout-established=0", "conntrack: {tcpEstablishedTimeout: 0s}"),
    ("--conntrack-tcp-timeout-close-wait=5s", "conntrack: {tcpCloseWaitTimeout: 5s}"),
    ("--conntrack-tcp-be-liberal", "conntrack: {tcpBeLiberal: true}"),
    ("--conntrack-udp-timeout=5s", "conntrack: {udpTimeout: 5s}"),
    ("--conntrack-udp-timeout-stream=5s", "conntrack: {udpStreamTimeout: 5s}"),
    ("--config-sync-period=5s", "configSyncPeriod: 5s"),
    ("-v=4", "logging: {verbosity: 4}"),
    ("--vmodule=store=4", "logging: {vmodule: [{filePattern: store, verbosity: 4}]}"),
    ("--logging-format=json", "logging: {format: json}"),
    ("--log-flush-frequency=9s", "logging: {flushFrequency: 9s}"),
    ("--log-text-split-stream", "logging: {options: {text: {splitStream: true}}}"),
    ("--log-text-info-buffer-size=1K", "logging: {options: {text: {infoBufferSize: 1K}}}"),
    ("--log-json-split-stream", "logging: {options: {json: {splitStream: true}}}"),
    ("--log-json-info-buffer-size=1K", "logging: {options: {json: {infoBufferSize: 1K}}}"),
]


@pytest.mark.parametrize(("flag", "field"), PAIRS, ids=[flag for flag, _ in PAIRS])
def test_a_flag_sets_the_field_it_stands_for_and_no_other(flag: str, field: str) -> None:
    body = field[1:-1].replace(", ipvs", "\nipvs") if field.startswith("{") else field
    assert resolved(flag) == load_configuration(HEAD + body).config
    assert resolved(flag) != resolved()


def test_every_flag_of_a_field_is_in_the_pairs() -> None:
    named = {word.partition("=")[0].lstrip("-") for word, _ in PAIRS}
    assert named == {row.flag.name for row in ROWS if row.field}


def test_every_flag_is_an_action_a_field_or_accepted_for_nothing() -> None:
    ports = {"healthz-port", "metrics-port"}
    actions = {row.flag.name for row in ACTIONS}
    assert {row.flag.name for row in ROWS if not row.field} == actions | ports | {
        r.flag.name for r in IGNORED
    }
    assert actions == {"config", "write-config-to", "cleanup", "init-only", "master", "version", "help"}


def test_no_flags_are_the_defaults() -> None:
    assert resolved() == load_configuration(HEAD).config == with_addresses(Configuration())


def test_a_mode_and_an_address_that_are_empty_are_the_defaults_too() -> None:
    """Observed: kube-proxy 1.36 on a node."""
    assert resolved("--proxy-mode=", "--bind-address=") == resolved()
    assert resolved("--healthz-bind-address=", "--metrics-bind-address=") == resolved()
    assert resolved("--detect-local-mode=") == resolved()


PERIODS = ["--iptables-sync-period=36s", "--iptables-min-sync-period=3s"]
IPVS_PERIODS = ["--ipvs-sync-period=16s", "--ipvs-min-sync-period=7s"]


@pytest.mark.parametrize(
    ("mode", "flags", "periods"),
    [
        ("iptables", PERIODS + IPVS_PERIODS, (36, 3)),
        ("nftables", PERIODS + IPVS_PERIODS, (36, 3)),
        ("ipvs", PERIODS + IPVS_PERIODS, (16, 7)),
        ("ipvs", PERIODS, (30, 1)),
        ("ipvs", [], (30, 1)),
        ("iptables", IPVS_PERIODS, (30, 1)),
        ("nftables", [], (30, 1)),
    ],
)
def test_each_mode_is_paced_by_the_flags_that_are_for_it(
    mode: str, flags: list[str], periods: tuple[float, float]
) -> None:
    paced = resolved(f"--proxy-mode={mode}", *flags).sync_section
    assert (paced.sync_period, paced.min_sync_period) == tuple(map(Duration.of, periods))


def test_a_file_gives_ipvs_mode_another_least_period_than_flags_do() -> None:
    assert resolved(file="mode: ipvs").sync_section.min_sync_period == Duration()


def test_masquerade_all_is_for_the_mode_that_is_selected() -> None:
    config = resolved("--masquerade-all", "--proxy-mode=nftables")
    assert (config.nftables.masquerade_all, config.iptables.masquerade_all) == (True, False)


def test_zero_means_zero_in_a_flag() -> None:
    assert resolved("--iptables-min-sync-period=0").iptables.min_sync_period == Duration()


def test_an_unknown_mode_and_every_other_bad_value_are_named_together() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        resolved("--proxy-mode=ebpf", "--oom-score-adj=2000", "--cluster-cidr=x", "--feature-gates=Nope=true")
    assert {problem.path for problem in raised.value.problems} == {
        "mode",
        "oomScoreAdj",
        "clusterCIDR",
        "featureGates.Nope",
    }


# ------------------------------------------------------------------------------- ports


def test_deprecated_port_flags_move_the_default_address() -> None:
    config = resolved("--healthz-port=1", "--metrics-port=2", "--metrics-bind-address=1.2.3.4")
    assert config.healthz_bind_address == "0.0.0.0:10256"
    assert config.metrics_bind_address == "1.2.3.4:2"


def test_health_can_be_switched_off_and_metrics_cannot() -> None:
    assert resolved("--healthz-port=0").healthz_bind_address == ""
    with pytest.raises(InvalidConfiguration, match=r"^metricsBindAddress"):
        resolved("--metrics-port=0")


def test_deprecated_port_flags_do_not_count_beside_a_file() -> None:
    assert resolved("--healthz-port=0", file="").healthz_bind_address == "0.0.0.0:10256"


# ------------------------------------------------------------------------------- file


def test_the_file_beats_the_flags_and_the_flags_that_lose_are_named() -> None:
    answer = resolve(
        given("--config=f", "--proxy-mode=iptables", "--masquerade-all"), (HEAD + "mode: nftables").encode()
    )
    assert answer.config.mode == "nftables"
    assert not answer.config.nftables.masquerade_all
    assert answer.warnings == (
        "--masquerade-all does not count beside --config",
        "--proxy-mode does not count beside --config",
    )


@pytest.mark.parametrize("row", SETTINGS, ids=[row.flag.name for row in SETTINGS])
def test_no_setting_counts_beside_a_file(row: object) -> None:
    flag = next(word for word, _ in PAIRS if word.startswith(f"--{row.flag.name}"))  # type: ignore[attr-defined]
    assert resolved(flag, file="") == load_configuration(HEAD).config


@pytest.mark.parametrize("row", LOGGING, ids=[row.flag.name for row in LOGGING])
def test_logging_flags_count_beside_a_file(row: object) -> None:
    name = row.flag.name  # type: ignore[attr-defined]
    flag, field = next(pair for pair in PAIRS if pair[0].split("=")[0].lstrip("-") == name)
    assert resolved(flag, file="mode: nftables") == resolved(file=f"mode: nftables\n{field}")


def test_patterns_of_the_flag_go_before_those_of_the_file() -> None:
    config = resolved("--vmodule=store=4", file="logging: {vmodule: [{filePattern: store, verbosity: 1}]}")
    assert [item.verbosity for item in config.logging.vmodule] == [4, 1]


@pytest.mark.parametrize("file", ["hostnameOverride: From-File", None])
def test_the_name_by_flag_beats_the_file_trimmed_and_in_small_letters(file: str | None) -> None:
    assert resolved("--hostname-override= From-Flag ", file=file).hostname_override == "from-flag"


def test_a_name_in_the_file_is_kept_as_written_and_an_empty_flag_is_none() -> None:
    assert (
        resolved("--hostname-override=", file="hostnameOverride: From-File").hostname_override == "From-File"
    )


def test_a_blank_name_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="hostname-override"):
        resolved("--hostname-override=  ")


def test_what_strict_reading_refuses_in_a_file_is_a_warning() -> None:
    assert resolve(given(), (HEAD + "foo: 1").encode()).warnings == ('unknown field "foo"',)


def test_no_mode_fills_in_the_addresses_that_accept_node_ports() -> None:
    """nftables mode serves loopback beside its primary addresses only where these are not selected by name."""
    assert resolved(file="mode: nftables").node_port_addresses == ()
    assert resolved(file="mode: iptables").node_port_addresses == ()
    assert resolved(file="mode: nftables\nnodePortAddresses: [primary]").node_port_addresses == ("primary",)
    assert resolved(file="mode: nftables\nnodePortAddresses: [10.0.0.0/8]").node_port_addresses == (
        "10.0.0.0/8",
    )


# ------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("flag", [flag for flag, _ in PAIRS] + ["--proxy-mode=nftables"])
def test_what_is_written_is_read_back_the_same(flag: str) -> None:
    config = resolved(flag)
    assert resolved(file=to_yaml(config).replace(HEAD, "")) == config
    assert unwritable_fields(config) == ()


def test_everything_is_written_defaults_too() -> None:
    written = configuration_document(resolved("--proxy-mode=nftables"))
    assert written["apiVersion"] == "kubeproxy.config.k8s.io/v1alpha1"
    assert written["kind"] == "KubeProxyConfiguration"
    assert written["mode"] == "nftables"
    assert written["detectLocalMode"] == "ClusterCIDR"
    assert written["nodePortAddresses"] == []
    assert written["conntrack"]["tcpEstablishedTimeout"] == "24h0m0s"
    assert written["ipvs"]["excludeCIDRs"] == []


def test_what_the_api_cannot_hold_is_reported() -> None:
    lost = unwritable_fields(resolved("--iptables-min-sync-period=0", "--healthz-port=0"))
    assert [line.split(":")[0] for line in lost] == ["healthzBindAddress", "iptables.minSyncPeriod"]


# ------------------------------------------------------------------------------- gates


@pytest.mark.parametrize(
    "name",
    ["KubeletInUserNamespace", "ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions", "AllAlpha"],
)
def test_gates_that_other_components_share_do_not_keep_a_node_from_starting(name: str) -> None:
    assert resolved(file=f"featureGates: {{{name}: true}}").feature_gates == {name: True}


@pytest.mark.parametrize(
    "gate", ["AllowOverwriteTerminationGracePeriodSeconds", "GitRepoVolumeDriver", "SeparateCacheWatchRPC"]
)
def test_a_gate_that_is_locked_off_may_be_switched_off_only(gate: str) -> None:
    """As kube-proxy 1.36's ``kubernetes_feature_enabled`` has them."""
    assert resolved(f"--feature-gates={gate}=false").feature_gates == {gate: False}
    with pytest.raises(InvalidConfiguration, match="locked to false"):
        resolved(f"--feature-gates={gate}=true")


def test_a_locked_gate_may_be_given_its_own_value_only() -> None:
    resolved(file="featureGates: {NFTablesProxyMode: true}")
    with pytest.raises(InvalidConfiguration, match="locked to true"):
        resolved(file="featureGates: {NFTablesProxyMode: false}")


def test_a_gate_is_on_by_its_own_word_by_those_for_all_or_by_default() -> None:
    assert gate_enabled({}, "AllowServiceExternalIPs")
    assert gate_enabled({}, "ComponentStatusz")
    assert not gate_enabled({"AllBeta": False}, "ComponentStatusz")
    assert gate_enabled({"AllBeta": False, "ComponentStatusz": True}, "ComponentStatusz")
    assert not gate_enabled({}, "NativeHistograms")
    assert gate_enabled({"AllAlpha": True}, "NativeHistograms")
    assert gate_enabled({"MultiCIDRServiceAllocator": False}, "MultiCIDRServiceAllocator")
    assert {name for name, gate in FEATURE_GATES.items() if gate.locked} >= {
        "MultiCIDRServiceAllocator",
        "PreferSameTrafficDistribution",
        "NFTablesProxyMode",
    }
