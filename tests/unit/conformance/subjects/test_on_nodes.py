"""A subject's programs on the nodes of a cluster of this machine: every placeholder has a real value, or a reason for none."""

import sys
from pathlib import Path

import pytest
import yaml

from kproxy.conformance.subjects.on_nodes import placeholder_values, programs_on_node, subject_on_nodes
from kproxy.conformance.subjects.subject import BUNDLED, PLACEHOLDERS, InvalidSubject, subject_from_toml
from kproxy.lab.cluster.node_programs import NodePlace, NodeProgram

PLACE = NodePlace(
    node="node-2",
    address="192.168.130.12",
    directory=Path("/cluster/proxy/node-2"),
    kubeconfig=Path("/cluster/inside.kubeconfig"),
    api_server="https://192.168.130.1:6443",
    pod_ranges=("10.244.0.0/16", "fd00:10:244::/48"),
)
SUBJECT = """
name = "two"
modes = ["ebpf", "iptables"]
[[processes]]
name = "agent"
command = ["{binary}", "--node={node_name}", "--address={node_ip}", "--other={this stays}"]
ready = ["test", "-e", "{directory}/ready"]
[[processes]]
name = "proxy"
command = ["{python}", "{config}", "{kubeconfig}", "{api_server}", "{mode}"]
[environment]
HOME = "{directory}"
[files]
"own.json" = '{"node": "{node}"}'
[mounts]
"/sys/fs/bpf" = "bpf"
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "proxy").touch()
    return str(tmp_path / "proxy")


def test_programs_files_and_mounts_of_a_node() -> None:
    made = programs_on_node(subject_from_toml(SUBJECT, "two.toml", "/opt/two"), "ebpf", PLACE)
    assert made.programs == (
        NodeProgram(
            name="agent",
            argv=("/opt/two", "--node=node-2", "--address=192.168.130.12", "--other={this stays}"),
            ready=("test", "-e", "/cluster/proxy/node-2/ready"),
        ),
        NodeProgram(
            name="proxy",
            argv=(
                sys.executable,
                "/cluster/proxy/node-2/config.yaml",
                "/cluster/inside.kubeconfig",
                "https://192.168.130.1:6443",
                "ebpf",
            ),
        ),
    )
    assert made.environment == {"HOME": "/cluster/proxy/node-2"}
    assert made.files["own.json"] == '{"node": "node-2"}'
    assert made.mounts == {"/sys/fs/bpf": "bpf"}


def test_its_configuration_is_of_this_node_and_cluster() -> None:
    made = programs_on_node(subject_from_toml(SUBJECT, "two.toml", "/opt/two"), "iptables", PLACE)
    configuration = yaml.safe_load(made.files["config.yaml"])
    assert configuration["mode"] == "iptables"
    assert configuration["hostnameOverride"] == "node-2"
    assert configuration["clusterCIDR"] == "10.244.0.0/16,fd00:10:244::/48"
    assert configuration["clientConnection"] == {"kubeconfig": "/cluster/inside.kubeconfig"}


def test_every_placeholder_has_a_value() -> None:
    values = placeholder_values(subject_from_toml(SUBJECT, "two.toml", "/opt/two"), "ebpf", PLACE)
    assert values.keys() == PLACEHOLDERS.keys()
    assert all(values.values())


@pytest.mark.parametrize("name", BUNDLED)
def test_subjects_of_the_package_can_run_there(name: str, program: str) -> None:
    made = subject_on_nodes(name, program, "")(PLACE)
    assert made.programs
    assert not any(f"{{{each}}}" in word for each in PLACEHOLDERS for word in made.programs[0].argv)


def test_the_first_mode_is_taken_where_none_is_given(tmp_path: Path, program: str) -> None:
    (tmp_path / "two.toml").write_text(SUBJECT)
    assert subject_on_nodes(str(tmp_path / "two.toml"), program, "")(PLACE).programs[1].argv[-1] == "ebpf"


@pytest.mark.parametrize("section", ["environment", "files"])
def test_a_placeholder_without_a_value_is_named(tmp_path: Path, section: str) -> None:
    (tmp_path / "own.toml").write_text(
        f'name = "own"\nmodes = ["x"]\ncommand = ["/own"]\n[{section}]\nPROGRAM = "{{binary}}"\n'
    )
    with pytest.raises(InvalidSubject, match=rf"own.toml: \[{section}\] {{binary}} is the path given"):
        subject_on_nodes(str(tmp_path / "own.toml"), "", "")


def test_a_program_that_nodes_cannot_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSubject, match="there is no such file"):
        subject_on_nodes("kube-proxy", str(tmp_path / "none"), "")
    with pytest.raises(InvalidSubject, match="nodes have a /var/lib of their own"):
        subject_on_nodes("kube-proxy", "/var/lib/dpkg/status", "")


def test_a_mode_that_it_has_not_is_refused(program: str) -> None:
    with pytest.raises(InvalidSubject, match="--mode nftables: kube-router has ipvs"):
        subject_on_nodes("kube-router", program, "nftables")
