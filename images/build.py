"""Make our image, from Debian packages and wheels alone: ``python -m images.build [TAG] [--output FILE]``.

No registry of images is queried: the base is `images.base`, kproxy and its dependencies come as wheels for the base's
Python, and Docker's engine (``DOCKER_HOST``, or the usual socket) builds the Dockerfile beside this file.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from images import base
from images.base import CannotBuild

if TYPE_CHECKING:
    import docker

TAG = "kproxy:dev"
BASE_TAG = "kproxy-base:bookworm"
REPOSITORY = Path(__file__).parents[1]

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_FOR_THE_BASE = (
    *("--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--no-compile"),
    *(f"--platform={platform}" for platform in _PLATFORMS),
)


def engine() -> docker.DockerClient:
    """Docker's engine.  Raises `CannotBuild` where it, or the Python package that connects to it, is missing."""
    try:
        import docker  # noqa: PLC0415 - whose absence is reported

        return docker.from_env()
    except ModuleNotFoundError as missing:
        reason = (
            f"the Python package {missing.name} is missing; type: {sys.executable} -m pip install '.[kind]'"
        )
        raise CannotBuild(reason) from missing
    except docker.errors.DockerException as error:
        raise CannotBuild(f"Docker's engine does not answer (is dockerd running?): {error}") from error


def build(client: docker.DockerClient, tag: str = TAG) -> str:
    """Build the image in an engine, and return its tag.  Raises `CannotBuild`."""
    repository, _, version = BASE_TAG.partition(":")
    client.api.import_image_from_data(base.root_file_system(), repository=repository, tag=version)
    with tempfile.TemporaryDirectory(prefix="kproxy-image-") as context:
        for name in ("Dockerfile", "start.py", "capable.py"):
            shutil.copy(Path(__file__).with_name(name), context)
        _install(Path(context, "site"))
        _build(client, context, tag)
    return tag


def save(client: docker.DockerClient, tag: str, file: Path) -> None:
    """Write an image to an archive, as ``docker save`` does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as output:
        output.writelines(client.images.get(tag).save(named=True))


def _build(client: docker.DockerClient, context: str, tag: str) -> None:
    from docker.errors import DockerException  # noqa: PLC0415 - there is a client, so the package is there

    try:
        client.images.build(path=context, tag=tag, buildargs={"BASE": BASE_TAG}, network_mode="none")
    except DockerException as error:
        raise CannotBuild(str(error)) from error


def _install(site: Path) -> None:
    """Kproxy's wheel, and those of its dependencies that fit the base's Python, unpacked."""
    with tempfile.TemporaryDirectory(prefix="kproxy-wheel-") as wheels:
        _pip("wheel", "--no-deps", "--wheel-dir", wheels, str(REPOSITORY))
        _pip("install", "--target", str(site), *_FOR_THE_BASE, *map(str, Path(wheels).glob("*.whl")))
    shutil.rmtree(site / "bin", ignore_errors=True)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"pip {arguments[0]}: {done.stderr.strip()[-1000:]}")


def main() -> int:
    """Build it for a person: 0 and the tag, or 2 and what is missing."""
    parser = argparse.ArgumentParser(prog="python -m images.build", description=__doc__.splitlines()[0])
    parser.add_argument("tag", nargs="?", default=TAG)
    parser.add_argument("--output", type=Path, help="also an archive, for `kproxy lab cluster`")
    options = parser.parse_args()
    try:
        client = engine()
        image = client.images.get(build(client, options.tag))
        if options.output:
            save(client, options.tag, options.output)
    except CannotBuild as reason:
        print(reason, file=sys.stderr)
        return 2
    print(f"{image.tags[0]}  {image.attrs['Size'] / 1e6:.0f} MB  {image.short_id}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
