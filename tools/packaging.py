"""Metadata of the distribution that depends on where it is built: its links, and those of README.md as PyPI shows it.

A hook of hatchling, named in ``pyproject.toml``.  The repository is that of the workflow (``GITHUB_REPOSITORY``), else that of the
remote ``origin``: a fork's package links to the fork.  Without either the package has no links, and README.md stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_TARGET = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s]+)\)")
"""The end of a relative link or image in Markdown, with its target."""

_PICTURES = (".png", ".svg", ".jpg", ".gif")

_ORIGIN = re.compile(r"(?:git@|https://|ssh://git@)(?P<host>[\w.-]+)[:/](?P<path>[\w./-]+?)(?:\.git)?/?")


class Metadata(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, object]) -> None:
        """Called by hatchling before it builds anything."""
        root = Path(self.root)
        repository = find_repository(root, os.environ)
        readme = (root / "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(readme, repository) if repository else readme
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = project_urls(repository) if repository else {}


def find_repository(root: Path, environment: Mapping[str, str]) -> str:
    """URL of the repository that a package is built from; empty if that is unknown."""
    if name := environment.get("GITHUB_REPOSITORY"):
        return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = _ORIGIN.fullmatch(printed)
    return f"https://{found['host']}/{found['path']}" if found else ""


def project_urls(repository: str) -> dict[str, str]:
    """Links of the project, as PyPI lists them."""
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
    }


def with_absolute_links(text: str, repository: str) -> str:
    """Markdown with its relative links made absolute, and images as files: PyPI shows no other file of the repository."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1].endswith(_PICTURES) else "blob"
        return f"]({repository}/{kind}/main/{found[1]})"

    return _TARGET.sub(link, text)
