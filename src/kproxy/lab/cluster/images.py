"""Images as archives that ``ctr images import`` takes, made without an engine: pause, and root file systems with a name.

The archive is that of ``docker save`` (https://github.com/moby/docker-image-spec): layers, a configuration and a manifest.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kproxy.lab.cluster.node import PAUSE_IMAGE
from kproxy.lab.namespaces import LabError

_LOAD_ADDRESS, _HEADERS = 0x400000, 64 + 56
_PAUSE_CODE = bytes.fromhex("b8220000000f05ebf7")
"""x86-64: ``mov eax, 34; syscall; jmp`` back, for ever: pause(2)."""


def pause_program() -> bytes:
    """Statically linked ELF program that waits until it is killed, and nothing else.  Raises `LabError` but on x86-64."""
    if platform.machine() != "x86_64":
        raise LabError(f"the lab's pause image is for x86_64, this is {platform.machine()}")
    size = _HEADERS + len(_PAUSE_CODE)
    ident = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    header = ident + _integers((2, 2), (2, 62), (4, 1), (8, _LOAD_ADDRESS + _HEADERS), (8, 64), (8, 0))
    header += _integers((4, 0), (2, 64), (2, 56), (2, 1), (2, 0), (2, 0), (2, 0))
    segment = _integers((4, 1), (4, 5), (8, 0), (8, _LOAD_ADDRESS), (8, _LOAD_ADDRESS))
    return header + segment + _integers((8, size), (8, size), (8, 0x1000)) + _PAUSE_CODE


def _integers(*fields: tuple[int, int]) -> bytes:
    """Little-endian integers from pairs of size and value."""
    return b"".join(value.to_bytes(size, "little") for size, value in fields)


def write_pause_image(folder: Path) -> Path:
    """Archive of the sandbox's image; returns it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        member = tarfile.TarInfo("pause")
        program = pause_program()
        member.size, member.mode = len(program), 0o755
        archive.addfile(member, io.BytesIO(program))
    file = folder / "pause.tar"
    write_image(file, [layer.getvalue()], {"Entrypoint": ["/pause"], "User": "65535:65535"}, [PAUSE_IMAGE])
    return file


def write_image(
    file: Path, layers: Sequence[bytes], configuration: Mapping[str, object], tags: Sequence[str]
) -> None:
    """Archive with layers (uncompressed tar archives, the lowest first) under all these names."""
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    root = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "config": dict(configuration), "rootfs": root}
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    paths = [f"{digest}/layer.tar" for digest in digests]
    manifest = json.dumps([{"Config": name, "RepoTags": list(tags), "Layers": paths}]).encode()
    with tarfile.open(file, mode="w") as archive:
        for path, content in [*zip(paths, layers, strict=True), (name, config), ("manifest.json", manifest)]:
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
