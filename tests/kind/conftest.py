"""Fixtures for tests in containers, an engine with our image in it, and the choice of a cluster.

A missing prerequisite fails, with what to do about it: a skipped packet test proves nothing.  Tests in a cluster are
for who asks for one by ``--provider``; to everybody else it is said that they were not run, and what they would need.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import docker
import pytest

from images.base import CannotBuild
from images.build import build
from tests.kind.cluster import lacking
from tests.kind.engine import NoEngine, engine

CANNOT_RUN = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--provider", choices=["kind"], help="also the tests in a cluster, made by this")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs a cluster; runs with --provider only")
    if config.getoption("--provider") and (lacks := lacking()):
        pytest.exit(f"--provider kind: {'; '.join(lacks)}", CANNOT_RUN)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--provider"):
        left_out = [item for item in items if item.get_closest_marker("cluster")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--provider"):
        needs = "; ".join(lacking()) or "nothing is missing here"
        terminalreporter.write_line(f"tests in a cluster were not run: give --provider kind ({needs})")


@pytest.fixture(scope="session")
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--provider"))


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
