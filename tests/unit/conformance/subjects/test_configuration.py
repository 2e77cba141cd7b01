"""What a subject is configured with is what a service proxy's own loader takes, word for word."""

from ipaddress import ip_network

import pytest
import yaml

from kproxy.conformance.case import DEFAULT, Profile
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.lab.topology import LAB, NODES
from kproxy.proxy.daemon.config.load import InvalidConfiguration, load_configuration

PROFILES = list(dict.fromkeys(case.profile for case in CATALOGUE))
EACH_PROFILE = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)


def text_for(profile: Profile, node: str = "a", mode: str = "iptables") -> str:
    place = NodeConfiguration(
        node=node, mode=mode, kubeconfig="/somewhere/kubeconfig", min_sync_period="250ms"
    )
    return kube_proxy_configuration(profile, place)


@EACH_PROFILE
@pytest.mark.parametrize("node", NODES)
def test_every_profile_loads_without_a_warning(profile: Profile, node: str) -> None:
    loaded = load_configuration(text_for(profile, node))
    assert loaded.warnings == ()
    assert loaded.config.hostname_override == LAB.hostnames[node]
    assert loaded.config.client_connection.kubeconfig == "/somewhere/kubeconfig"


def test_the_loader_would_warn_and_refuse() -> None:
    document = yaml.safe_load(text_for(PROFILES[0]))
    assert load_configuration(yaml.safe_dump({**document, "nodePortAdresses": []})).warnings
    with pytest.raises(InvalidConfiguration):
        load_configuration(yaml.safe_dump({**document, "clusterCIDR": "10.244.0.0"}))


@EACH_PROFILE
def test_every_setting_of_a_profile_arrives(profile: Profile) -> None:
    config = load_configuration(text_for(profile)).config
    assert config.detect_local_mode == (profile.detect_mode or "ClusterCIDR")
    assert config.iptables.masquerade_all is profile.masquerade_all
    assert config.iptables.masquerade_bit == profile.masquerade_bit
    assert config.iptables.localhost_node_ports is (profile.localhost_node_ports is not False)
    assert tuple(config.node_port_addresses) == profile.node_port_addresses
    assert config.feature_gates.get("AllowServiceExternalIPs", True) is profile.allow_external_ips
    interface = config.detect_local.bridge_interface or config.detect_local.interface_name_prefix
    assert interface == profile.detect_interface


@EACH_PROFILE
@pytest.mark.parametrize("mode", ["iptables", "ipvs", "nftables", "userspace"])
def test_only_the_section_that_the_mode_reads_holds_the_masquerade_of_a_profile(
    profile: Profile, mode: str
) -> None:
    document = yaml.safe_load(text_for(profile, mode=mode)) | {"mode": "iptables"}
    config = load_configuration(yaml.safe_dump(document)).config
    read = {"nftables": {"nftables"}}
    for name, section in (("iptables", config.iptables), ("nftables", config.nftables)):
        is_read = name in read.get(mode, {"iptables"})
        assert (section.masquerade_all is profile.masquerade_all) is is_read
        assert (section.masquerade_bit == profile.masquerade_bit) is is_read


@EACH_PROFILE
def test_pod_ranges_of_its_families_are_given_where_they_detect_pods(profile: Profile) -> None:
    given = load_configuration(text_for(profile)).config.cluster_cidr
    ranges = {ip_network(text) for text in given.split(",") if text}
    wanted = {LAB.cluster_cidr[family] for family in profile.detect_families}
    assert ranges == (wanted if profile.detect_mode == "ClusterCIDR" else set())


def test_a_subject_may_be_given_time_between_syncs() -> None:
    config = load_configuration(text_for(PROFILES[0])).config
    assert config.iptables.min_sync_period.seconds == pytest.approx(0.25)


def test_profiles_differ_in_what_they_configure() -> None:
    texts = {profile.name: text_for(profile) for profile in PROFILES}
    alike = {
        profile.name
        for profile in PROFILES
        if (profile.isolated and profile.sync_period == DEFAULT.sync_period) or len(profile.families) == 1
    }
    assert len(set(texts.values())) == len(texts) - len(alike)
