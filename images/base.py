"""The base of our image: a root file system of Debian packages, with no shell, no package manager and no compiler.

mmdebstrap fetches and unpacks the packages without configuring them, so none of their scripts is run, or needed.
What they would have set up is done here: two names for Python, and who is ``iptables``.  ``/var/lib/dpkg/status.d``
holds each package's control file, by which scanners know what is inside.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection
from pathlib import Path

SUITE = "bookworm"
PACKAGES = (
    "python3.11-minimal",
    "libpython3.11-stdlib",
    "iptables",  # kproxy run --mode=iptables, and ipvs's few rules
    "nftables",
    "ipset",
    "conntrack",
)
MISSING = "mmdebstrap is not installed: apt-get install mmdebstrap"

_UNUSED = (  # what packages bring that nothing in the image uses
    "bin/tar",
    "etc/cron.*",
    "etc/logrotate.d",
    "usr/*/dpkg*",
    "usr/bin/update-alternatives",
    "usr/sbin/arptables*",
    "usr/sbin/ebtables*",
    "usr/sbin/*-apply",
    "usr/sbin/*-translate",
    "usr/sbin/*tar*",
    "usr/sbin/nfnl_osf",
    "usr/share/bug",
    "usr/share/lintian",
    "usr/share/doc/*/examples",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/perl5",
    "usr/share/bash-completion",
    "var/lib/apt",
)
_OF_THE_BUILDER = {"./etc/hostname", "./etc/resolv.conf", "./sbin/start-stop-daemon"}
"""What mmdebstrap puts there for its own use."""
_LINKS = {"usr/bin/python3": "python3.11"} | {
    f"usr/sbin/{tool}{what}": "xtables-nft-multi"
    for tool in ("iptables", "ip6tables")
    for what in ("", "-save", "-restore")
}


class CannotBuild(Exception):
    """Something that building needs is not here; the message has the remedy."""


def root_file_system(suite: str = SUITE) -> bytes:
    """The base as a tar archive.  Raises `CannotBuild`."""
    program = shutil.which("mmdebstrap")
    if program is None:
        raise CannotBuild(MISSING)
    hook = f'--extract-hook={sys.executable} {__file__} "$1"'
    options = ["--variant=extract", "--mode=auto", f"--include={','.join(PACKAGES)}", "--format=tar", hook]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "0")}
    done = subprocess.run(
        [program, "--quiet", *options, suite, "-"], capture_output=True, check=False, env=environment
    )
    if done.returncode:
        raise CannotBuild(f"mmdebstrap: {done.stderr.decode(errors='replace').strip()[-1000:]}")
    return _without(done.stdout, _OF_THE_BUILDER)


def note_packages(root: Path) -> None:
    """Write each package's control file below ``status.d``, as scanners of images without dpkg look for it."""
    folder = root / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True, exist_ok=True)
    for archive in sorted(root.glob("var/cache/apt/archives/*.deb")):
        fields = subprocess.run(
            ["dpkg-deb", "--field", archive], check=True, capture_output=True, text=True
        ).stdout
        name = next(line for line in fields.splitlines() if line.startswith("Package: "))
        (folder / name.removeprefix("Package: ")).write_text(fields)


def tidy(root: Path) -> None:
    """Take out what is not used, put in what the packages' scripts would have."""
    for pattern in _UNUSED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, target in _LINKS.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)
    for folder in ("run", "tmp", "proc", "sys", "dev", "var/lib/kube-proxy", "etc"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _without(archive: bytes, names: Collection[str]) -> bytes:
    """The archive without some of its files."""
    output = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=output, mode="w") as new:
        for member in old:
            if member.name not in names:
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
    return output.getvalue()


if __name__ == "__main__":
    note_packages(Path(sys.argv[1]))
    tidy(Path(sys.argv[1]))
