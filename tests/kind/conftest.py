"""Fixtures for tests in containers, an engine with our image in it, and the choice of a cluster.

A missing prerequisite fails, with what to do about it: a skipped packet test proves nothing.  Tests in a cluster of this
machine's run where its programs are, those in a cluster of kind or k3s with ``--provider``; otherwise the summary lists them as
not run, with what they need.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import docker
import pytest

from images.base import CannotBuild
from images.build import build
from kproxy.lab.cluster.command import cluster_spec
from kproxy.lab.namespaces import LabError
from tests.kind import k3s, kind
from tests.kind.cluster import Cluster
from tests.kind.engine import NoEngine, engine
from tests.kind.local import local_cluster, options

CANNOT_RUN = 2
PROVIDERS = {"kind": kind.lacking, "k3s": k3s.lacking}
"""What makes a cluster with ``--provider``, and what it lacks here."""
LAYERS = ("local", *PROVIDERS)
"""Markers of the layers above containers, in the order they run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--provider", choices=[*PROVIDERS], help="also the tests in a cluster, made by this")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "local: needs the programs and images of a cluster of this machine's")
    for name in PROVIDERS:
        config.addinivalue_line("markers", f"{name}: needs a cluster; runs with --provider {name} only")
    if (name := config.getoption("--provider")) and (lacks := PROVIDERS[name]()):
        pytest.exit(f"--provider {name}: {'; '.join(lacks)}", CANNOT_RUN)


def not_run(config: pytest.Config) -> dict[str, str]:
    """Layers that are not run, by marker, with what they need."""
    left_out = {}
    try:
        cluster_spec(options("nftables"))
    except LabError as reason:
        lacks = " ".join(str(reason).split())
        left_out["local"] = f"tests in a cluster of this machine's were not run: {lacks}"
    for name in PROVIDERS.keys() - {config.getoption("--provider")}:
        needs = "; ".join(PROVIDERS[name]()) or "nothing is missing here"
        left_out[name] = f"tests in a cluster of {name} were not run: give --provider {name} ({needs})"
    return left_out


def layer(item: pytest.Item) -> str:
    """The least costly first."""
    return next((mark for mark in LAYERS if item.get_closest_marker(mark)), "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if layer(item) in not_run(config)]
    chosen = [item for item in items if item not in left_out]
    items[:] = sorted(chosen, key=lambda item: ["", *LAYERS].index(layer(item)))
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in not_run(config).values():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    if os.geteuid() != 0:
        pytest.fail("tests/kind needs root for network namespaces: run `sudo nox -s kind`")
    try:
        with engine() as address, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            client = docker.DockerClient(base_url=address)
            yield client
            client.close()
    except NoEngine as reason:
        pytest.fail(str(reason))


@pytest.fixture(scope="session")
def image(client: docker.DockerClient) -> str:
    """Built from this working copy, or what ``KPROXY_IMAGE`` names, of an engine that keeps images."""
    if name := os.environ.get("KPROXY_IMAGE"):
        return name
    try:
        return build(client)
    except CannotBuild as reason:
        pytest.fail(str(reason))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """By `tests.kind.providers`, with kproxy as its service proxy."""
    provider, mode = request.param
    if provider == "local":
        with local_cluster(mode) as local:
            yield local
    else:
        image, folder = request.getfixturevalue("image"), tmp_path_factory.mktemp(provider)
        opened = kind.kind_cluster(image, folder) if provider == "kind" else k3s.k3s_cluster(image, folder)
        with opened as made:
            made.install(mode)
            made.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=300s")
            yield made
