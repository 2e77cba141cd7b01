"""Addresses, links and command lines of a cluster, without starting anything."""

import json
import re
import shutil
import subprocess
import tarfile
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from kproxy.lab.cluster import control_plane, images, layout
from kproxy.lab.cluster.credentials import make_credentials, node_user
from kproxy.lab.cluster.layout import OUTSIDE, ClusterLayout
from kproxy.lab.cluster.node import KERNEL_TUNABLES, PAUSE_IMAGE, SCRIPT, NodeFiles
from kproxy.lab.cluster.programs import KUBERNETES, find_programs
from kproxy.lab.cluster.service_proxy import (
    KUBE_PROXY_IMAGE,
    ProxyName,
    proxy_documents,
    write_kube_proxy_image,
)
from kproxy.lab.cluster.wiring import ClusterWiring
from kproxy.lab.kube import MissingAssets
from kproxy.lab.namespaces import LabError
from kproxy.lab.topology import ELSEWHERE, SWITCH
from kproxy.model.network import Family
from tests.support.paths import ROOT

THREE = ClusterLayout(3)
OPENSSL = Path(shutil.which("openssl") or "/usr/bin/openssl")


@pytest.mark.parametrize("size", [0, layout.MOST_NODES + 1])
def test_a_number_of_nodes_without_addresses_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"not {size}"):
        ClusterLayout(size)


@pytest.mark.parametrize("family", Family)
def test_no_two_have_one_address_and_no_two_ranges_overlap(family: Family) -> None:
    most = ClusterLayout(layout.MOST_NODES)
    addresses = [
        layout.control_plane_address(family),
        layout.elsewhere_address(family),
        *(most.node_address(node, family) for node in most.nodes),
        *(most.outside_address(name, index, family) for name in OUTSIDE for index in (0, 1)),
    ]
    assert len(set(addresses)) == len(addresses)
    assert all(address in layout.NODE_NETWORK[family] for address in addresses)
    ranges = [most.pod_range(node, family) for node in most.nodes]
    assert not any(first.overlaps(second) for first, second in combinations(ranges, 2))
    assert all(pods.subnet_of(layout.POD_NETWORK[family]) for pods in ranges)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", Family)
def test_each_node_has_a_route_to_the_pods_of_every_other(family: Family) -> None:
    text = ClusterWiring(THREE).addressing("node-2", family)
    routes = re.findall(r"^route add (\S+) via (\S+)$", text, re.MULTILINE)
    others = ("node-1", "node-3")
    wanted = [(str(THREE.pod_range(node, family)), str(THREE.node_address(node, family))) for node in others]
    assert routes == [*wanted, ("default", str(layout.elsewhere_address(family)))]


@pytest.mark.parametrize("family", Family)
def test_a_client_outside_goes_through_the_node_of_its_source_address(family: Family) -> None:
    text = ClusterWiring(THREE).addressing("client", family)
    for index, node in enumerate(("node-1", "node-2")):
        own = THREE.outside_address("client", index, family)
        assert f"rule add from {own} to {layout.SERVICE_NETWORK[family]} lookup {101 + index}" in text
        assert f"route add default via {THREE.node_address(node, family)} table {101 + index}" in text


def test_nodes_limit_icmp_errors_as_nodes_do_and_nobody_is_redirected() -> None:
    wiring = ClusterWiring(THREE)
    assert not [name for name in wiring.sysctls("node-1") if "icmp" in name]
    assert wiring.sysctls("node-1")["ipv4/conf/all/send_redirects"] == "0"
    assert wiring.sysctls("node-1")["ipv4/conf/default/send_redirects"] == "0"
    assert wiring.sysctls("client")["ipv4/conf/all/accept_redirects"] == "0"
    assert wiring.sysctls("node-1")["bridge/bridge-nf-call-iptables"] == "1"
    assert wiring.sysctls(SWITCH)["bridge/bridge-nf-call-iptables"] == "0"
    assert {SWITCH, ELSEWHERE, *THREE.nodes, *OUTSIDE} == set(wiring.namespaces)


def test_node_objects_have_the_ranges_that_routes_lead_to() -> None:
    documents = {one["metadata"]["name"]: one for one in control_plane.registered_nodes(THREE)}
    for node in THREE.nodes:
        ranges = [str(THREE.pod_range(node, family)) for family in Family]
        assert documents[node]["spec"] == {"podCIDR": ranges[0], "podCIDRs": ranges}


def test_a_kubelet_finds_its_group_and_its_runtime(tmp_path: Path) -> None:
    files = NodeFiles(THREE, "node-2", tmp_path / "node-2", "cluster-x-node-2")
    files.write(tmp_path / "ca.crt")
    kubelet = json.loads((files.folder / "kubelet.json").read_text())
    assert kubelet["cgroupRoot"] == "/cluster-x-node-2"
    socket = kubelet["containerRuntimeEndpoint"].removeprefix("unix://")
    containerd = (files.folder / "containerd.toml").read_text()
    assert f'address = "{socket}"' in containerd
    assert f'sandbox_image = "{PAUSE_IMAGE}"' in containerd
    (network,) = (json.loads(file.read_text()) for file in (files.folder / "net.d").iterdir())
    subnets = [one["subnet"] for (one,) in network["plugins"][0]["ipam"]["ranges"]]
    assert subnets == [str(THREE.pod_range("node-2", family)) for family in Family]
    environment = files.environment(tmp_path, tmp_path, tmp_path)
    assert environment["ADDRESSES"] == ",".join(str(THREE.node_address("node-2", f)) for f in Family)
    assert environment["TUNABLES"].split() == list(KERNEL_TUNABLES)
    assert set(re.findall(r"\$([A-Z]+)", SCRIPT)) - {"PATH"} == environment.keys()


def test_certificates_are_of_the_cluster_s_authority_and_name_all_its_addresses(tmp_path: Path) -> None:
    made = make_credentials(OPENSSL, tmp_path / "credentials", THREE)
    for name in ("apiserver", "kubelet-client"):
        argv = [str(OPENSSL), "verify", "-CAfile", str(made.authority), str(made.certificate(name))]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 0
    argv = [str(OPENSSL), "x509", "-noout", "-text", "-in", str(made.certificate("apiserver"))]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "IP Address:192.168.130.1" in text
    assert "IP Address:10.96.0.1" in text
    lines = [line.split(",") for line in made.token_file.read_text().splitlines()]
    groups = {line[1]: line[3] for line in lines}
    assert groups[node_user("node-1")] == '"system:nodes"'
    assert groups["admin"] == '"system:masters"'
    assert groups["system:kube-scheduler"] == '""'
    assert len({line[0] for line in lines}) == len(lines)


def test_openssl_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="openssl req"):
        make_credentials(Path("/bin/false"), tmp_path / "credentials", THREE)


def test_pause_is_a_program_that_waits_until_it_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(images.pause_program())
    program.chmod(0o755)
    with subprocess.Popen([program]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
        assert process.wait() == -9


def test_an_image_on_another_one_has_its_layers_and_one_more(tmp_path: Path) -> None:
    base, file = images.write_pause_image(tmp_path), tmp_path / "kube-proxy.tar"
    program = tmp_path / "kube-proxy"
    program.write_text("program")
    write_kube_proxy_image(program, base, file)
    with tarfile.open(base) as one, tarfile.open(file) as other:
        (below,), (above,) = (json.loads(_content(archive, "manifest.json")) for archive in (one, other))
        assert above["RepoTags"] == [KUBE_PROXY_IMAGE]
        assert above["Layers"][:-1] == below["Layers"]
        config = json.loads(_content(other, above["Config"]))
        assert len(config["rootfs"]["diff_ids"]) == len(above["Layers"]) == 2
        layer = other.extractfile(above["Layers"][-1])
        with tarfile.open(fileobj=layer) as added:
            assert added.getnames() == ["usr/local/bin/kube-proxy"]


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_all_that_is_missing_is_named_at_once_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(MissingAssets) as raised:
        find_programs(None, {"PATH": str(tmp_path)})
    message = str(raised.value)
    assert "KUBEBUILDER_ASSETS" in message
    for name in ("etcd: apt-get install etcd-server", *KUBERNETES):
        assert name in message


def test_programs_of_kubernetes_are_not_taken_from_path(tmp_path: Path) -> None:
    folder, path = tmp_path / "assets", tmp_path / "path"
    for place in (folder, path):
        place.mkdir()
    (path / "kubelet").touch(0o755)
    (folder / "etcd").touch(0o755)
    with pytest.raises(MissingAssets) as raised:
        find_programs(folder, {"PATH": str(path)})
    assert f"kubelet, kubectl in {folder}" in str(raised.value)
    assert "etcd:" not in str(raised.value)


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_kube_proxy_is_configured_for_the_mode_and_this_cluster(mode: str) -> None:
    documents = proxy_documents(ProxyName.KUBE_PROXY, mode, Path("kubectl"), ROOT / "deploy")
    (data,) = (one["data"] for one in documents if one["kind"] == "ConfigMap")
    configuration, config = (yaml.safe_load(data[name]) for name in ("config.conf", "kubeconfig.conf"))
    assert configuration["mode"] == mode
    assert configuration["clusterCIDR"] == "10.244.0.0/16,fd00:10:244::/48"
    (cluster,) = config["clusters"]
    host = cluster["cluster"]["server"].removeprefix("https://").removesuffix(":6443")
    assert ip_address(host) == layout.control_plane_address(Family.IPV4)


def test_a_mode_without_an_overlay_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="--deploy"):
        proxy_documents(ProxyName.KPROXY, "nftables", Path("kubectl"), tmp_path)
    assert proxy_documents(ProxyName.NONE, "nftables", Path("kubectl"), tmp_path) == []
