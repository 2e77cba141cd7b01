"""Makes the archive and the manifest of krew's index: ``python -m tools.krew FOLDER VERSION``.

The same input gives the same archive, whose digest the manifest holds.
https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
from pathlib import Path

import yaml
from packaging.version import Version

from tools.packaging import find_repository

ROOT = Path(__file__).parents[1]
_FILES = (ROOT / "deploy/krew/kubectl-kproxy", ROOT / "LICENSE")
_DESCRIPTION = """\
Explains what is lawful for one packet in the cluster and why, traces which rule of a node handles it, compares two
service proxies on the cluster's Services, and builds these Services in a lab on this machine.
It only reads, by the current context.
"""
UNKNOWN = "https://REPOSITORY"
"""What stands for the repository in a clone without a remote."""
_CAVEATS = "Needs kproxy on PATH: pipx install kube-kproxy\n"


def archive(version: str) -> bytes:
    """The archive of a version, as bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in _FILES:
            member = tarfile.TarInfo(f"kubectl-kproxy-{version}/{path.name}")
            member.size, member.mode = path.stat().st_size, 0o755 if path.parent.name == "krew" else 0o644
            with path.open("rb") as file:
                tar.addfile(member, file)
    return gzip.compress(packed.getvalue(), mtime=0)


def semantic_version(version: str) -> str:
    """A version of Python's (PEP 440) as krew takes it: ``0.1.0rc1`` is ``v0.1.0-rc.1`` (https://semver.org)."""
    found = Version(version)
    numbers = ".".join(str(number) for number in (found.major, found.minor, found.micro))
    labels = [str(label) for label in found.pre or ()]
    labels += [] if found.dev is None else ["dev", str(found.dev)]
    return f"v{numbers}-{'.'.join(labels)}" if labels else f"v{numbers}"


def manifest(version: str, repository: str, packed: bytes, name: str) -> dict[str, object]:
    """The manifest, as a document; ``name``: of the archive among a release's files."""
    folder = f"kubectl-kproxy-{version}"
    platform = {
        "selector": {"matchLabels": {"os": "linux"}},
        "uri": f"{repository}/releases/download/v{version}/{name}",
        "sha256": hashlib.sha256(packed).hexdigest(),
        "files": [{"from": f"{folder}/*", "to": "."}],
        "bin": "kubectl-kproxy",
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "kproxy"},
        "spec": {
            "version": semantic_version(version),
            "homepage": repository,
            "shortDescription": "Explain and trace packets to Services",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [platform],
        },
    }


def write(folder: Path, version: str, repository: str) -> None:
    """Write both files."""
    packed, name = archive(version), f"kubectl-kproxy-{version}.tar.gz"
    (folder / name).write_bytes(packed)
    document = manifest(version, repository, packed, name)
    (folder / "kproxy.krew.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], find_repository(ROOT, os.environ) or UNKNOWN)
