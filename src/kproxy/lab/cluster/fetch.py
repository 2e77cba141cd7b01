"""``kproxy lab cluster fetch``: Kubernetes' programs from the release site, each verified by its checksum.

The site has ``vVERSION/bin/linux/ARCHITECTURE/PROGRAM`` and beside it ``PROGRAM.sha256``, 64 hexadecimal digits
(https://kubernetes.io/releases/download/).  A program gets its name in the folder only after it was verified, and what is
there and right already is not fetched again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import urllib.error
import urllib.request
import urllib.response
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kproxy.documents import TEXT, print_document
from kproxy.lab.cluster.programs import KUBERNETES
from kproxy.lab.kube.assets import VARIABLE
from kproxy.lab.namespaces import LabError
from kproxy.tls import client_context

RELEASES = "https://dl.k8s.io/release"
FETCHED = (*KUBERNETES, "kube-proxy")
"""Programs that are fetched: those of a cluster, and the service proxy to compare with."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_SECONDS, _PIECE = 60.0, 1 << 20
_CANNOT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of Kubernetes on a release site."""

    version: str
    url: str = RELEASES

    def __post_init__(self) -> None:
        """Raise `LabError` for what is no version, or no URL of a site."""
        if not _VERSION.fullmatch(self.version):
            raise LabError(f"--version {self.version}: give three numbers, such as 1.36.2")
        if not self.url.startswith(("https://", "http://")):
            raise LabError(f"--url {self.url}: give an address with http:// or https://")

    def address(self, name: str) -> str:
        """URL of a file of this machine's architecture.  Raises `LabError` for one that Kubernetes is not built for."""
        architecture = _ARCHITECTURES.get(platform.machine())
        if architecture is None:
            raise LabError(
                f"there are no programs for {platform.machine()}, only for {', '.join(_ARCHITECTURES)}"
            )
        return f"{self.url.rstrip('/')}/v{self.version}/bin/linux/{architecture}/{name}"


def run_fetch(assets: Path | None, version: str, url: str, form: str = TEXT) -> int:
    """Fill a folder with a version's programs; 0, or 2 when something of it is missing."""
    try:
        folder = _folder(assets)
        fetched = fetch_programs(Release(version=version, url=url), folder, _report)
    except LabError as reason:
        sys.stderr.write(f"kproxy lab cluster fetch: {reason}\n")
        return _CANNOT
    if form != TEXT:
        document = {
            "schema": "kproxy-lab-assets/1",
            "version": version,
            "folder": str(folder),
            "fetched": fetched,
            "there": [name for name in FETCHED if name not in fetched],
        }
        print_document(document, form)
    return 0


def _folder(assets: Path | None) -> Path:
    folder = assets or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder is None:
        raise LabError(f"give the folder for the programs with --assets, or set {VARIABLE}")
    return folder


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def fetch_programs(release: Release, folder: Path, report: Callable[[str], None]) -> list[str]:
    """Fetch all programs that are not in the folder already, and return their names.

    Raises `LabError`, which names all that is missing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"--assets {folder}: {error.strerror}; give a folder that can be written to"
        ) from error
    problems, gotten = [], []
    for name in FETCHED:
        try:
            fetched = _fetch(release, name, folder / name)
        except LabError as reason:
            problems.append(f"{name}: {reason}")
        else:
            gotten += [name] if fetched else []
            report(f"{name}: {'fetched' if fetched else 'there already'}, checksum verified")
    if problems:
        raise LabError("these are missing:\n  " + "\n  ".join(problems))
    return gotten


def _fetch(release: Release, name: str, file: Path) -> bool:
    """True if the program was fetched, False if it was there already."""
    address = release.address(name)
    wanted = _open(f"{address}.sha256").read(_PIECE).decode(errors="replace").strip()
    if not _CHECKSUM.fullmatch(wanted):
        raise LabError(f"{address}.sha256 is no checksum: {wanted[:80]!r}")
    if file.exists() and _checksum(file) == wanted:
        return False
    incoming = file.with_name(f".{name}.incoming")
    try:
        _download(address, incoming)
        if (got := _checksum(incoming)) != wanted:
            raise LabError(f"{address} has the checksum {got}, the site says {wanted}: it was not installed")
        incoming.chmod(0o755)
        incoming.rename(file)
    finally:
        incoming.unlink(missing_ok=True)
    return True


def _download(address: str, file: Path) -> None:
    try:
        with _open(address) as answer, file.open("wb") as output:
            while piece := answer.read(_PIECE):
                output.write(piece)
    except OSError as error:
        raise LabError(f"{address}: {error}") from error


def _open(address: str) -> urllib.response.addinfourl:
    try:
        answer: urllib.response.addinfourl = urllib.request.urlopen(  # noqa: S310 (`Release` holds the scheme)
            address, timeout=_SECONDS, context=client_context() if address.startswith("https:") else None
        )
    except urllib.error.HTTPError as error:
        with error:
            raise LabError(f"{address}: {error.code} {error.reason}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise LabError(f"{address} cannot be reached ({reason}): put the program there yourself") from error
    return answer


def _checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
