import pytest

from kproxy.model.network import parse_address
from kproxy.proxy.daemon.config.configuration import Configuration, append_port, split_host_port
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.load import InvalidConfiguration, load_configuration, read_configuration
from kproxy.proxy.daemon.config.write import to_yaml

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

EVERYTHING = """
featureGates: {AllowServiceExternalIPs: false}
clientConnection: {kubeconfig: /k, acceptContentTypes: a, contentType: application/json, qps: 50, burst: 100}
logging: {format: text, flushFrequency: 5s, verbosity: 4, vmodule: [{filePattern: "x*", verbosity: 9}], options: {json: {infoBufferSize: "0"}}}
hostnameOverride: Node-A
bindAddress: "::"
healthzBindAddress: "[::1]:10"
metricsBindAddress: 127.0.0.1:20
bindAddressHardFail: true
enableProfiling: true
showHiddenMetricsForVersion: "1.35"
mode: ipvs
iptables: {masqueradeBit: 0, masqueradeAll: true, localhostNodePorts: false, syncPeriod: 1m, minSyncPeriod: 2s}
ipvs: {syncPeriod: 40s, minSyncPeriod: 3s, scheduler: sh, excludeCIDRs: [10.0.0.0/8], strictARP: true, tcpTimeout: 1s, tcpFinTimeout: 2s, udpTimeout: 3s}
nftables: {masqueradeBit: 15, masqueradeAll: true, syncPeriod: 50s, minSyncPeriod: 4s}
winkernel: {networkName: net, sourceVip: v, enableDSR: true, rootHnsEndpointName: r, forwardHealthCheckVip: true}
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cbr0, interfaceNamePrefix: veth}
clusterCIDR: 10.0.0.0/8,fd00::/8
nodePortAddresses: [192.0.2.0/24]
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, tcpBeLiberal: true, udpTimeout: 5s, udpStreamTimeout: 6s}
configSyncPeriod: 1m
portRange: 1-2
windowsRunAsService: true
"""


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(InvalidConfiguration) as raised:
        load_configuration(HEAD + text)
    return {problem.path: problem.text for problem in raised.value.problems}


def test_every_documented_field_is_known() -> None:
    assert load_configuration(HEAD + EVERYTHING).warnings == ()


def test_every_value_arrives_where_it_belongs() -> None:
    config = load_configuration(HEAD + EVERYTHING).config
    assert config.client_connection.burst == 100
    assert config.logging.verbosity == 4
    assert config.iptables.masquerade_bit == 0
    assert config.iptables.localhost_node_ports is False
    assert config.ipvs.exclude_cidrs == ("10.0.0.0/8",)
    assert config.ipvs.strict_arp
    assert config.nftables.sync_period == Duration.of(50)
    assert config.winkernel.enable_dsr
    assert config.detect_local.bridge_interface == "cbr0"
    assert config.cluster_cidr == "10.0.0.0/8,fd00::/8"
    assert config.conntrack.tcp_established_timeout == Duration()
    assert config.sync_section is config.ipvs


def test_an_empty_configuration_has_the_documented_defaults() -> None:
    config = load_configuration(HEAD).config
    assert config.mode == "iptables"
    assert config.detect_local_mode == "ClusterCIDR"
    assert config.bind_address == "0.0.0.0"
    assert config.healthz_bind_address == "0.0.0.0:10256"
    assert config.metrics_bind_address == "127.0.0.1:10249"
    assert config.oom_score_adj == -999
    assert config.config_sync_period == Duration.of(900)
    for section in (config.iptables, config.nftables):
        assert section.masquerade_bit == 14
        assert section.sync_period == Duration.of(30)
        assert section.min_sync_period == Duration.of(1)
    assert config.ipvs.min_sync_period == Duration()
    assert config.iptables.localhost_node_ports
    assert config.conntrack.max_per_core == 32_768
    assert config.conntrack.min == 131_072
    assert config.conntrack.tcp_established_timeout == Duration.of(86_400)
    assert config.conntrack.tcp_close_wait_timeout == Duration.of(3_600)


def test_zero_means_the_default_where_the_api_cannot_distinguish_zero_from_absence() -> None:
    config = load_configuration(
        HEAD + "iptables: {syncPeriod: 0s, minSyncPeriod: 0s}\nbindAddress: ''\nmode: ''"
    ).config
    assert config.iptables.sync_period == Duration.of(30)
    assert config.iptables.min_sync_period == Duration.of(1)
    assert (config.bind_address, config.mode) == ("0.0.0.0", "iptables")


def test_null_means_the_default() -> None:
    assert (
        load_configuration(HEAD + "conntrack: null\niptables: {masqueradeBit: null}").config
        == load_configuration(HEAD).config
    )


def test_json_is_read_too() -> None:
    text = (
        '{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"nftables"}'
    )
    assert load_configuration(text).config.mode == "nftables"


def test_an_ipv6_bind_address_moves_the_other_addresses() -> None:
    config = load_configuration(HEAD + "bindAddress: '::'").config
    assert (config.healthz_bind_address, config.metrics_bind_address) == ("[::]:10256", "[::1]:10249")


def test_unknown_and_duplicate_fields_are_reported_and_lived_with() -> None:
    loaded = load_configuration(
        HEAD + "foo: 1\niptables: {bar: 2, masqueradeAll: true}\nmode: ipvs\nmode: nftables\n"
    )
    assert loaded.warnings == (
        'line 6: key "mode" is given twice',
        'unknown field "foo"',
        'unknown field "iptables.bar"',
    )
    assert loaded.config.mode == "nftables"
    assert loaded.config.iptables.masquerade_all


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kind: KubeProxyConfiguration",
        "kind: Pod\napiVersion: v1",
        "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha2",
        "[1, 2]",
        "a: [",
        HEAD + "mode: \x00",
    ],
)
def test_what_is_no_configuration_of_this_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration):
        load_configuration(text)


def test_all_wrong_types_are_named_at_once() -> None:
    found = problems_of(
        "mode: 3\niptables: {syncPeriod: 30, masqueradeBit: x}\nconntrack: []\nfeatureGates: {A: 1}"
    )
    assert set(found) == {
        "mode",
        "iptables.syncPeriod",
        "iptables.masqueradeBit",
        "conntrack",
        "featureGates",
    }


def test_all_wrong_values_are_named_at_once() -> None:
    found = problems_of(
        """
        mode: ebpf
        iptables: {masqueradeBit: 32, syncPeriod: -1s, minSyncPeriod: -2s}
        conntrack: {min: -1, udpTimeout: -1s}
        bindAddress: node
        healthzBindAddress: 1.2.3.4:0
        metricsBindAddress: nowhere
        oomScoreAdj: 1001
        clusterCIDR: 10.0.0.0/8,11.0.0.0/8
        nodePortAddresses: [primary, 10.0.0.0/8]
        featureGates: {NoSuchGate: true, NFTablesProxyMode: false}
        clientConnection: {burst: -1}
        """.replace("\n        ", "\n")
    )
    assert set(found) == {
        "mode",
        "iptables.masqueradeBit",
        "iptables.syncPeriod",
        "iptables.minSyncPeriod",
        "conntrack.min",
        "conntrack.udpTimeout",
        "bindAddress",
        "healthzBindAddress",
        "metricsBindAddress",
        "oomScoreAdj",
        "clusterCIDR",
        "nodePortAddresses",
        "featureGates.NoSuchGate",
        "featureGates.NFTablesProxyMode",
        "clientConnection.burst",
    }


INVALID = [
    ("iptables: {syncPeriod: 1s, minSyncPeriod: 2s}", "iptables.syncPeriod"),
    ("configSyncPeriod: -1s", "configSyncPeriod"),
    ("mode: nftables\nnftables: {masqueradeBit: -1}", "nftables.masqueradeBit"),
    ("mode: nftables\nnftables: {syncPeriod: -1s}", "nftables.syncPeriod"),
    ("mode: nftables\nnftables: {affinityClients: -1}", "nftables.affinityClients"),
    ("mode: nftables\nnftables: {affinityClients: 16777217}", "nftables.affinityClients"),
    ("mode: ipvs\nipvs: {tcpTimeout: -1s}", "ipvs.tcpTimeout"),
    ("mode: ipvs\nipvs: {excludeCIDRs: [x]}", "ipvs.excludeCIDRs"),
    ("mode: ipvs\nipvs: {scheduler: least connections}", "ipvs.scheduler"),
    ("mode: ipvs\nipvs: {scheduler: a-name-of-16-byte}", "ipvs.scheduler"),
    ("mode: userspace\nuserspace: {workers: -1}", "userspace.workers"),
    ("mode: userspace\nuserspace: {workers: 65}", "userspace.workers"),
    ("userspace: {workers: many}", "userspace.workers"),
    ("userspace: {keepSources: 3}", "userspace.keepSources"),
    ("detectLocalMode: Guess", "detectLocalMode"),
    ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface"),
    ("detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix"),
    ("clusterCIDR: 10.0.0.0", "clusterCIDR"),
    ("clusterCIDR: '10.0.0.0/8,fd00::/8,11.0.0.0/8'", "clusterCIDR"),
    ("clusterCIDR: 10.0.0.0/8,", "clusterCIDR"),
    ("clusterCIDR: '10.0.0.0/8, fd00::/8'", "clusterCIDR"),
    ("nodePortAddresses: [10.0.0.1]", "nodePortAddresses"),
    ("metricsBindAddress: 1.2.3.4:70000", "metricsBindAddress"),
    ("mode: nftables\niptables: {masqueradeBit: 32}", "iptables.masqueradeBit"),
    ("mode: ipvs\nipvs: {minSyncPeriod: -1s}", "ipvs.minSyncPeriod"),
    ("mode: ipvs\nipvs: {tcpFinTimeout: -1s}", "ipvs.tcpFinTimeout"),
    ("mode: ipvs\nipvs: {udpTimeout: -1s}", "ipvs.udpTimeout"),
    ("conntrack: {maxPerCore: -1}", "conntrack.maxPerCore"),
    ("conntrack: {maxPerCore: 2147483648}", "conntrack.maxPerCore"),
    ("conntrack: {tcpEstablishedTimeout: -1s}", "conntrack.tcpEstablishedTimeout"),
    ("conntrack: {tcpCloseWaitTimeout: -1s}", "conntrack.tcpCloseWaitTimeout"),
    ("conntrack: {udpStreamTimeout: -1s}", "conntrack.udpStreamTimeout"),
    ("oomScoreAdj: -1001", "oomScoreAdj"),
    ("showHiddenMetricsForVersion: '1.20'", "showHiddenMetricsForVersion"),
    ("logging: {verbosity: -4}", "logging.verbosity"),
    ("logging: {format: xml}", "logging.format"),
]


@pytest.mark.parametrize(("text", "path"), INVALID)
def test_a_rule_names_the_field_that_breaks_it(text: str, path: str) -> None:
    assert path in problems_of(text)


VALID = [
    "iptables: {syncPeriod: 2s, minSyncPeriod: 2s}",
    "iptables: {masqueradeBit: 31}",
    "oomScoreAdj: -1000",
    "nodePortAddresses: [primary]",
    "nodePortAddresses: [10.0.0.0/8, 'fd00::/8']",
    "clusterCIDR: 10.0.0.0/8",
    "clusterCIDR: fd00::/8,10.0.0.0/8",
    "featureGates: {AllowServiceExternalIPs: false, NFTablesProxyMode: true}",
    # sections of other modes are not looked at (cfg.mode-sections)
    "ipvs: {tcpTimeout: -1s, excludeCIDRs: [x], scheduler: least connections}",
    "nftables: {masqueradeBit: 99}",
    "mode: nftables\niptables: {syncPeriod: -1s}",
    "showHiddenMetricsForVersion: '1.35'",
    "detectLocalMode: NodeCIDR\nclusterCIDR: whatever",
    "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
]


AS_GO_YAML = [
    ("conntrack: {min: 1e+06}", "conntrack: {min: 1000000}"),
    ("conntrack: {maxPerCore: 1.31072e+06}", "conntrack: {maxPerCore: 1310720}"),
    ("conntrack: {maxPerCore: 32_768}", "conntrack: {maxPerCore: 32768}"),
    ("oomScoreAdj: 5.0", "oomScoreAdj: 5"),
    ("oomScoreAdj: -0.0", "oomScoreAdj: 0"),
    ("clientConnection: {qps: 1e3}", "clientConnection: {qps: 1000}"),
    ("iptables: {masqueradeBit: 0o16}", "iptables: {masqueradeBit: 14}"),
    ("iptables: {masqueradeBit: 016}", "iptables: {masqueradeBit: 14}"),
    ("iptables: {masqueradeBit: 08}", "iptables: {masqueradeBit: 8}"),
    ("iptables: {masqueradeBit: 0b1110}", "iptables: {masqueradeBit: 14}"),
    ("iptables: {masqueradeBit: +0xE}", "iptables: {masqueradeBit: 14}"),
    ("iptables: {masqueradeBit: !!int 0xE}", "iptables: {masqueradeBit: 14}"),
    ("enableProfiling: y", "enableProfiling: true"),
    ("enableProfiling: On", "enableProfiling: true"),
    ("enableProfiling: n", "enableProfiling: false"),
    ("hostnameOverride: 2024-01-01", "hostnameOverride: '2024-01-01'"),
    ("hostnameOverride: 1:30", "hostnameOverride: '1:30'"),
    ("hostnameOverride: 1e400", "hostnameOverride: '1e400'"),
    ("hostnameOverride: 0xg", "hostnameOverride: '0xg'"),
    ("hostnameOverride: =", "hostnameOverride: '='"),
    ("hostnameOverride: !!str 1", "hostnameOverride: '1'"),
    ("featureGates: {AllAlpha: null, AllBeta: yes}", "featureGates: {AllAlpha: false, AllBeta: true}"),
    (
        "nftables: &a {masqueradeAll: true}\niptables: {<<: *a}",
        "nftables: {masqueradeAll: true}\niptables: {masqueradeAll: true}",
    ),
]
"""What kube-proxy 1.36 reads as the same, by ``--write-config-to``."""


@pytest.mark.parametrize(("text", "same"), AS_GO_YAML)
def test_scalars_are_read_as_by_go_yaml(text: str, same: str) -> None:
    loaded = load_configuration(HEAD + text)
    assert loaded == load_configuration(HEAD + same)
    assert loaded.config != load_configuration(HEAD + "oomScoreAdj: 17").config


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("hostnameOverride: 1e3", "hostnameOverride"),
        ("hostnameOverride: y", "hostnameOverride"),
        ("hostnameOverride: .5", "hostnameOverride"),
        ("oomScoreAdj: 5.5", "oomScoreAdj"),
        ("oomScoreAdj: '5'", "oomScoreAdj"),
        ("oomScoreAdj: 1e21", "oomScoreAdj"),
        ("oomScoreAdj: .inf", "oomScoreAdj"),
        ("enableProfiling: 1", "enableProfiling"),
    ],
)
def test_a_scalar_of_another_type_is_refused(text: str, path: str) -> None:
    assert path in problems_of(text)


def test_a_key_that_is_no_text_is_an_unknown_field() -> None:
    loaded = load_configuration(HEAD + "iptables: {2: 2, yes: 3}")
    assert loaded.warnings == ('unknown field "iptables.2"', 'unknown field "iptables.true"')


@pytest.mark.parametrize(
    "name", ["y", "1e3", "0o16", "2024-01-01", "null", "1:30", "n1", "<<", "~", ".5", "12"]
)
def test_a_written_text_is_read_back_as_text(name: str) -> None:
    config = Configuration(hostname_override=name)
    assert read_configuration(to_yaml(config)).config.hostname_override == name


SCHEDULERS = ("rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "twos")
"""Those of Linux (net/netfilter/ipvs/Kconfig); a distribution may have more, and kube-proxy leaves it to the kernel."""


@pytest.mark.parametrize("name", ["", *SCHEDULERS, "of_a_vendor-2"])
def test_any_name_that_a_scheduler_can_have_is_left_to_the_kernel(name: str) -> None:
    assert (
        load_configuration(f"{HEAD}mode: ipvs\nipvs: {{scheduler: '{name}'}}").config.ipvs.scheduler == name
    )


@pytest.mark.parametrize("text", VALID)
def test_what_is_allowed_is_not_refused(text: str) -> None:
    assert load_configuration(HEAD + text).warnings == ()


def test_a_problem_shows_path_value_and_rule() -> None:
    with pytest.raises(
        InvalidConfiguration, match=r'^mode: "x": must be one of iptables, ipvs, nftables, userspace$'
    ):
        load_configuration(HEAD + "mode: x")


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        load_configuration(HEAD).config.mode = "ipvs"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1.2.3.4", "1.2.3.4:7"),
        ("1.2.3.4:9", "1.2.3.4:9"),
        ("::1", "[::1]:7"),
        ("[::1]", "[::1]:7"),
        ("[::1]:9", "[::1]:9"),
        ("name", "name"),
    ],
)
def test_a_missing_port_is_appended(text: str, whole: str) -> None:
    assert append_port(text, 7) == whole


def test_host_and_port_are_distinguished() -> None:
    assert split_host_port("1.2.3.4:80") == (parse_address("1.2.3.4"), 80)
    assert split_host_port("[::1]:80") == (parse_address("::1"), 80)


@pytest.mark.parametrize(
    "text", ["", ":80", "1.2.3.4", "::1:80", "[1.2.3.4]:80", "a:80", "1.2.3.4:x", "1.2.3.4:65536"]
)
def test_what_is_no_host_and_port_is_none(text: str) -> None:
    assert split_host_port(text) is None


def test_defaults_of_the_value_are_those_of_the_file() -> None:
    config = load_configuration(HEAD).config
    assert config == type(config)(
        healthz_bind_address=config.healthz_bind_address, metrics_bind_address=config.metrics_bind_address
    )
    assert isinstance(config, Configuration)


@pytest.mark.parametrize("more", ["kind: ConfigMap\n", "", "[ this is: no YAML {"])
def test_of_several_documents_the_first_is_read_and_the_others_are_reported(more: str) -> None:
    """As kube-proxy 1.36 does, seen by ``--write-config-to``."""
    loaded = load_configuration(f"---\n{HEAD}mode: nftables\n---\n{more}")
    assert loaded.config.mode == "nftables"
    assert loaded.warnings == ("only the first document is read, what follows its end is not",)
    assert load_configuration(f"---\n{HEAD}mode: nftables\n...\n").warnings == ()


def test_a_first_document_that_is_empty_is_no_configuration() -> None:
    with pytest.raises(InvalidConfiguration):
        load_configuration(f"---\n---\n{HEAD}")


def test_a_key_that_is_no_scalar_is_a_syntax_error_with_its_line() -> None:
    (text,) = problems_of("conntrack: {{ .Values.conntrack }}\n").values()
    assert text.startswith("neither YAML nor JSON: line ")
