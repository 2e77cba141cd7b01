"""Images of Kubernetes' own end-to-end tests, without a registry: ``python -m images.e2e FOLDER``.

One root file system of Debian packages with the programs that the tests run in pods, and on it upstream's test servers
agnhost and regression-issue-74839, built from Kubernetes' source outside of this repository (``go build
./test/images/agnhost``).  The names are those of test/utils/image/manifest.go: a cluster that holds images of these names
pulls none.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from images.base import MISSING, SUITE, CannotBuild
from kproxy.lab.cluster.images import pause_program, write_image

REGISTRY = "registry.k8s.io"
AGNHOST = (f"{REGISTRY}/e2e-test-images/agnhost:2.63.0", f"{REGISTRY}/e2e-test-images/agnhost:2.55")
BUSYBOX = (
    f"{REGISTRY}/e2e-test-images/busybox:1.37.0-1",
    f"{REGISTRY}/build-image/distroless-iptables:v0.9.3",
)
REGRESSION = (f"{REGISTRY}/e2e-test-images/regression-issue-74839:1.5",)
PAUSE = (f"{REGISTRY}/pause:3.10.2",)
"""Names that Kubernetes 1.36's tests want."""

SERVERS = ("agnhost", "regression-issue-74839")
FOLDER = "images-e2e"
"""Folder of the archives beside the programs: only these tests' clusters import them."""

PACKAGES = (
    *("busybox", "bash", "curl", "bind9-dnsutils", "netcat-openbsd"),
    *("iproute2", "iperf", "wget"),
)
_APPLETS = ("vi", "ping", "traceroute")
"""Of busybox, as the tests call them. Its wget ends by a segmentation fault, so that is GNU's."""


def main() -> int:
    """Write the archives for a person: 0, or 2 and what is missing."""
    parser = argparse.ArgumentParser(prog="python -m images.e2e", description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help=f"the folder of `kproxy lab cluster --assets`, with {' and '.join(SERVERS)}"
    )
    folder = parser.parse_args().folder
    try:
        for file in write_images(folder):
            print(f"{file}  {file.stat().st_size / 1e6:.0f} MB")
    except CannotBuild as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0


def write_images(assets: Path) -> list[Path]:
    """The archives of a folder of programs; returns their paths.  Raises `CannotBuild`."""
    for name in SERVERS:
        if not (assets / name).exists():
            remedy = f"in Kubernetes' source `go build ./test/images/{name}` makes it"
            raise CannotBuild(f"there is no {assets / name}: {remedy}")
    folder = assets / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    base = root_file_system()
    files = [folder / f"e2e-{name}.tar" for name in ("agnhost", "busybox", "pause", "regression")]
    agnhost, regression = ((assets / name).read_bytes() for name in SERVERS)
    program = _layer({"agnhost": agnhost, "agnhost-2": agnhost})
    write_image(files[0], [base, program], {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}, AGNHOST)
    write_image(files[1], [base], {"Cmd": ["sh"]}, BUSYBOX)
    pause = _layer({"pause": pause_program()})
    write_image(files[2], [pause], {"Entrypoint": ["/pause"], "User": "65535:65535"}, PAUSE)
    server = _layer({SERVERS[1]: regression})
    write_image(files[3], [server], {"Entrypoint": [f"/{SERVERS[1]}"]}, REGRESSION)
    return files


def root_file_system() -> bytes:
    """The base as a tar archive, with busybox's applets under their names."""
    program = shutil.which("mmdebstrap")
    if program is None:
        raise CannotBuild(MISSING)
    links = "; ".join(f"ln -sf /bin/busybox $1/usr/local/bin/{name}" for name in _APPLETS)
    arguments = ["--quiet", "--variant=essential", f"--include={','.join(PACKAGES)}", "--format=tar"]
    hooks = [f"--customize-hook={links}", "--customize-hook=mkdir -p $1/uploads"]
    done = subprocess.run([program, *arguments, *hooks, SUITE, "-"], capture_output=True, check=False)
    if done.returncode:
        raise CannotBuild(f"mmdebstrap: {done.stderr.decode(errors='replace').strip()[-1000:]}")
    return done.stdout


def _layer(programs: dict[str, bytes]) -> bytes:
    """A layer with executable files at the root."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, content in programs.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return output.getvalue()


if __name__ == "__main__":
    sys.exit(main())
