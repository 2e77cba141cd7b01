"""What krew is given: an archive and its manifest (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/)."""

import hashlib
import subprocess
import tarfile
from pathlib import Path

import yaml

from tools.krew import archive, write

REPOSITORY = "https://git.test/kproxy"


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
    with tarfile.open(tmp_path / "kubectl-kproxy-1.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
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
