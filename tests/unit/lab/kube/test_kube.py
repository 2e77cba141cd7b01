"""The parts of a real API server's adapter that need none."""

import socket
import ssl
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from kproxy.conformance.binding.bind import LONGEST_LABEL, bind_cases
from kproxy.conformance.cases import CATALOGUE
from kproxy.lab.kube import MissingAssets, find_assets
from kproxy.lab.kube.store import _differences, on_loopback
from kproxy.lab.namespaces import Namespace


def program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_without_the_variable_it_reports_what_to_set() -> None:
    with pytest.raises(MissingAssets, match="KUBEBUILDER_ASSETS is not set"):
        find_assets({})


def test_without_the_binary_it_reports_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(MissingAssets, match=f"no kube-apiserver in {tmp_path}"):
        find_assets({"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""})


def test_etcd_may_be_a_package_of_the_machine(tmp_path: Path) -> None:
    assets, machine = tmp_path / "assets", tmp_path / "bin"
    for folder in (assets, machine):
        folder.mkdir()
    program(assets / "kube-apiserver")
    environment = {"KUBEBUILDER_ASSETS": str(assets), "PATH": str(machine)}
    with pytest.raises(MissingAssets, match="apt-get install etcd-server"):
        find_assets(environment)
    program(machine / "etcd")
    assert find_assets(environment).etcd == machine / "etcd"


@pytest.mark.parametrize(
    ("wanted", "held", "difference"),
    [
        ({"spec": {"ports": [{"port": 80}]}}, {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}, ""),
        ({"spec": {"ports": [{"port": 80}]}}, {"spec": {"ports": [{"port": 81}]}}, "spec.ports.port 81"),
        ({"spec": {}}, {"spec": {"clusterIP": "10.0.0.1"}}, "fills in clusterIP"),
        ({"ports": [{"name": ""}]}, {"ports": [{}]}, ""),
        ({"endpoints": [1, 2]}, {"endpoints": [1]}, "makes endpoints"),
    ],
)
def test_what_the_server_would_hold_otherwise_is_reported(
    wanted: dict[str, object], held: dict[str, object], difference: str
) -> None:
    assert difference in " ".join(_differences(wanted, held))
    assert bool(difference) == bool(list(_differences(wanted, held)))


def test_every_case_has_a_namespace_that_an_api_server_admits() -> None:
    names = [instance.namespace for instance in bind_cases(CATALOGUE)]
    assert max(map(len, names)) == LONGEST_LABEL
    assert len(set(names)) == len(names)


class Here:
    """This machine's own namespace, which keeps the socket it made."""

    def socket(self, family: int, kind: int) -> socket.socket:
        self.made = socket.socket(family, kind)
        return self.made


def test_a_server_that_does_not_listen_yet_costs_no_socket() -> None:
    here = Here()
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            on_loopback(cast("Namespace", here), deaf.getsockname()[1], ssl.create_default_context())
    assert here.made.fileno() == -1
