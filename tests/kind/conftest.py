"""Fixtures for tests in containers: an engine, and our image in it.

A missing prerequisite fails, with what to do about it: a skipped packet test proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import docker
import pytest

from images.base import CannotBuild
from images.build import build
from tests.kind.engine import NoEngine, engine


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
