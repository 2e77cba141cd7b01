"""README's lines, typed as they stand into a container of Debian that has our wheel in the place of a package index.

The wheel and all that it needs lie in a folder, since the container has no network; nothing of the checkout is in it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from kproxy.lab.kernels.host import CONTAINER_FIX
from tests.kind.engine import engine

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
IMAGE = ("kproxy-readme", "bookworm")
PACKAGES = "python3,pipx,iptables,nftables,ipset,conntrack,iproute2"
"""As a machine of a reader has them; README's line finds them installed, for there is no network."""
ENVIRONMENT = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/wheels",
    "PIPX_BIN_DIR": "/usr/local/bin",
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
MY_PROXY = """\
#!/bin/sh
exec kproxy run --proxy-mode=nftables --cluster-cidr=10.244.0.0/16,fd00:244::/48 --conntrack-max-per-core=0 --conntrack-min=0 \\
    --kubeconfig="${1#*=}" --hostname-override="${2#*=}"
"""
"""A proxy with the options of the subject file that README shows; it knows the lab's pods, as an installed one would."""


def line(pattern: str) -> str:
    """The one command of README that matches."""
    (found,) = set(re.findall(f"`({pattern}[^`]*)`", README))
    return str(found)


def blocks() -> list[str]:
    """Its blocks of commands."""
    return re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(folder)]
    subprocess.run([*pip, str(ROOT), "pytest", "pip", "setuptools", "wheel"], check=True)
    return folder


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[docker.DockerClient]:
    """An engine with an image of Debian; Docker's command finds it too."""
    archive = tmp_path_factory.mktemp("debian") / "root.tar"
    making = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", f"--include={PACKAGES}", "bookworm"]
    subprocess.run([*making, str(archive)], check=True)
    with (
        engine() as address,
        closing(docker.DockerClient(base_url=address)) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("DOCKER_HOST", address)
        client.api.import_image_from_file(str(archive), repository=IMAGE[0], tag=IMAGE[1])
        yield client
        client.images.remove(":".join(IMAGE), force=True)


@contextmanager
def container(client: docker.DockerClient, wheels: Path, options: Sequence[str]) -> Iterator[Container]:
    """A container made by Docker's command, as a reader would: the engine itself knows no ``systempaths``."""
    given = ["--detach", "--network=none", f"--volume={wheels}:/wheels:ro", *options]
    given += [f"--env={name}={value}" for name, value in ENVIRONMENT.items()]
    argv = ["docker", "run", *given, ":".join(IMAGE), "sleep", "infinity"]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    made = client.containers.get(done.stdout.strip())
    try:
        yield made
    finally:
        made.remove(force=True)


def typed(place: Container, command: str) -> tuple[int, str]:
    """Exit status and output of a command, in root's home."""
    done = place.exec_run(["bash", "-c", command], workdir="/root", tty=False)
    assert isinstance(done.output, bytes)
    return done.exit_code or 0, done.output.decode()


def granted() -> list[str]:
    """README's options of a container: it names exactly those that the program requires."""
    text = line("--cap-add")
    assert CONTAINER_FIX.endswith(text)
    return text.split()


def test_readmes_lines_work_in_a_container_of_debian(debian: docker.DockerClient, wheels: Path) -> None:
    run, judge = blocks()
    with container(debian, wheels, granted()) as place:
        for command in (line("apt-get install"), line("pipx install kube-kproxy"), line("pipx inject")):
            status, printed = typed(place, command)
            assert status == 0, printed
        status, printed = typed(place, run)
        assert status == 0, printed
        assert re.search(r"kproxy \(nftables\): \d{3} cases: \d{3} passed", printed), printed
        typed(place, f"cat >my-proxy <<'X'\n{MY_PROXY}X\nchmod +x my-proxy")
        status, printed = typed(place, judge)
        # README's file claims every feature and hands on no configuration, so masqueradeAll and its like fail
        assert (status, bool(re.search(r"mine \(default\): \d{3} cases: \d{3} passed, ", printed))) == (
            1,
            True,
        ), printed
        assert "<!doctype html>" in typed(place, "head -c 100 report.html")[1].lower()
        plugin = f"{line('pytest --pyargs')} --binary=./my-proxy -m internal-policy"
        status, printed = typed(place, plugin)
        assert (status, "6 passed" in printed) == (0, True), printed
        typed(place, "printf '#!/bin/sh\\nexec sleep 60\\n' >my-proxy")
        status, printed = typed(place, f"{plugin} --sync-timeout=3")
        assert (status, "6 failed" in printed) == (1, True), printed


@pytest.mark.parametrize(
    "options", [(), ("--cap-add=NET_ADMIN", "--cap-add=SYS_ADMIN")], ids=["no option", "no paths"]
)
def test_a_container_without_them_is_named_them_in_a_line(
    options: Sequence[str], debian: docker.DockerClient, wheels: Path
) -> None:
    with container(debian, wheels, options) as place:
        assert typed(place, line("pipx install kube-kproxy"))[0] == 0
        status, printed = typed(place, f"{blocks()[0].partition('#')[0]} --kernel host")
    assert status == 2
    (message,) = printed.strip().splitlines()
    assert CONTAINER_FIX in message
