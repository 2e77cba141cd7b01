"""What krew is given: an archive and its manifest (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/)."""

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.krew import archive, semantic_version, write

REPOSITORY = "https://git.test/kproxy"
SEMANTIC = re.compile(
    r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
)
"""The expression of https://semver.org, without build metadata, with the ``v`` that krew requires."""
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {"version", "shortDescription", "description", "caveats", "homepage", "platforms"},
    "platform": {"uri", "sha256", "selector", "files", "bin"},
}
"""Fields of a manifest (krew's pkg/index/types.go)."""


def refusals(document: dict[str, Any]) -> Iterator[str]:
    """Reasons for which krew, or a review for its index, refuses a manifest (its internal/index/validation, and its guide)."""
    spec, name = document["spec"], document["metadata"]["name"]
    if document["apiVersion"] != "krew.googlecontainertools.github.com/v1alpha2":
        yield "apiVersion"
    if document["kind"] != "Plugin" or not re.fullmatch(r"[\w-]+", name):
        yield "kind or name"
    if set(document) - FIELDS[""] or set(spec) - FIELDS["spec"]:
        yield "unknown field"
    if not SEMANTIC.fullmatch(spec["version"]):
        yield "version"
    if not spec["shortDescription"] or "\n" in spec["shortDescription"] or len(spec["shortDescription"]) > 50:
        yield "shortDescription"
    for platform in spec["platforms"]:
        yield from platform_refusals(platform)


def platform_refusals(platform: dict[str, Any]) -> Iterator[str]:
    """The same, of one platform."""
    if set(platform) - FIELDS["platform"] or not re.fullmatch("[a-f0-9]{64}", platform["sha256"]):
        yield "platform"
    if not platform["uri"] or not platform["bin"] or platform["bin"].startswith("/"):
        yield "uri or bin"
    if not platform["files"] or any(not each["from"] or not each["to"] for each in platform["files"]):
        yield "files"
    if not platform["selector"]["matchLabels"] or set(platform["selector"]["matchLabels"]) - {"os", "arch"}:
        yield "selector"


@pytest.mark.parametrize("version", ["1.2.3", "0.1.0.dev0", "0.1.0rc1"])
def test_krew_takes_the_manifest(tmp_path: Path, version: str) -> None:
    write(tmp_path, version, REPOSITORY)
    assert list(refusals(yaml.safe_load((tmp_path / "kproxy.krew.yaml").read_text()))) == []


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("version", "v0.1.0.dev0", "version"),
        ("version", "0.1.0", "version"),
        ("shortDescription", "x" * 51, "shortDescription"),
        ("summary", "x", "unknown field"),
    ],
)
def test_what_krew_refuses_is_seen(tmp_path: Path, place: str, value: str, reason: str) -> None:
    write(tmp_path, "1.2.3", REPOSITORY)
    document = yaml.safe_load((tmp_path / "kproxy.krew.yaml").read_text())
    document["spec"][place] = value
    assert list(refusals(document)) == [reason]


def test_versions_of_python_become_semantic_ones() -> None:
    assert [semantic_version(one) for one in ("0.1.0", "0.1", "0.1.0rc1", "0.1.0.dev0")] == [
        *("v0.1.0", "v0.1.0", "v0.1.0-rc.1", "v0.1.0-dev.0"),
    ]


def test_the_manifest_holds_the_digest_and_the_places_of_the_archive(tmp_path: Path) -> None:
    write(tmp_path, "1.2.3", REPOSITORY)
    document = yaml.safe_load((tmp_path / "kproxy.krew.yaml").read_text())
    assert document["kind"] == "Plugin"
    (platform,) = document["spec"]["platforms"]
    packed = tmp_path / platform["uri"].rpartition("/")[2]
    assert platform["uri"].startswith(f"{REPOSITORY}/releases/download/v1.2.3/")
    assert platform["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert document["spec"]["version"] == "v1.2.3"
    assert len(document["spec"]["shortDescription"]) <= 50
    (files,) = platform["files"]
    with tarfile.open(packed) as tar:
        assert f"{files['from'].removesuffix('*')}{platform['bin']}" in tar.getnames()
        assert f"{files['from'].removesuffix('*')}LICENSE" in tar.getnames()


def test_the_same_version_is_the_same_archive() -> None:
    assert archive("1") == archive("1")
    assert archive("1") != archive("2")


def test_the_program_runs_kproxy_or_names_how_to_get_it(tmp_path: Path) -> None:
    write(tmp_path, "1", REPOSITORY)
    subprocess.run(["tar", "-xzf", tmp_path / "kubectl-kproxy-1.tar.gz", "-C", tmp_path], check=True)
    program = tmp_path / "kubectl-kproxy-1/kubectl-kproxy"
    without = subprocess.run(
        [program, "explain"], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    assert (without.returncode, "pipx install kube-kproxy" in without.stderr) == (2, True)
    (tmp_path / "kproxy").write_text('#!/bin/sh\nfor given; do echo "<$given>"; done\n')
    (tmp_path / "kproxy").chmod(0o755)
    done = subprocess.run(
        [program, "explain", "a b"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "<kubectl>\n<explain>\n<a b>\n"
