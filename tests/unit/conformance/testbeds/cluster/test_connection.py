"""Connection of a pod to its own cluster, by its service account; kubeconfigs are tested by test_command.py."""

import subprocess
from pathlib import Path

import pytest

from kproxy.conformance.testbeds.cluster.connection import IN_CLUSTER, NoCluster, connect_cluster


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account, in the environment of a pod."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00:10:96::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("first\n")
    arguments = (
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=ca",
    )
    files = ("-keyout", "/dev/null", "-out", str(tmp_path / "ca.crt"))
    subprocess.run(["openssl", "req", *arguments, *files], check=True, capture_output=True)
    return tmp_path


def test_a_pod_is_in_the_cluster_that_it_judges(account: Path) -> None:
    found = connect_cluster(account=account)
    assert (found.url, found.context) == ("https://[fd00:10:96::1]:443", IN_CLUSTER)
    assert found.tls is not None
    assert [one["subject"] for one in found.tls.get_ca_certs()] == [((("commonName", "ca"),),)]


def test_the_token_is_read_for_each_request(account: Path) -> None:
    found = connect_cluster(account=account)
    assert found.headers() == {"Authorization": "Bearer first"}
    (account / "token").write_text("second")
    assert found.headers() == {"Authorization": "Bearer second"}


def test_a_kubeconfig_comes_first(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoCluster, match=r"kubeconfig .*nowhere"):
        connect_cluster(f"{account}/nowhere", account=account)
    monkeypatch.setenv("KUBECONFIG", f"{account}/elsewhere")
    with pytest.raises(NoCluster, match=r"kubeconfig .*elsewhere"):
        connect_cluster(account=account)


def test_a_pod_without_a_token_names_what_to_set(account: Path) -> None:
    (account / "token").unlink()
    with pytest.raises(NoCluster, match="set automountServiceAccountToken"):
        connect_cluster(account=account)
