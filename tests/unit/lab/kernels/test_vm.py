"""A virtual machine as a value: which kernel is taken, what is missing, how it is started, what happens inside."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kproxy.lab.kernels import guest, vm
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.namespaces import LabError

PATIENCE = 20.0


def a_job(*, fast: bool = False, writable: tuple[Path, ...] = ()) -> vm.VmJob:
    kernel = Path("/boot/vmlinuz-6.1")
    return vm.VmJob(
        kernel=kernel, argv=("a", "b c"), environment={}, cwd=Path("/w"), writable=writable, fast=fast
    )


def arguments_after(command: list[str], flag: str) -> list[str]:
    return [command[at + 1] for at, word in enumerate(command) if word == flag]


def test_the_folders_that_a_job_writes_to_are_shared_and_no_others() -> None:
    command = a_job(writable=(Path("/results"), Path("/w"))).command(Path("/job"))
    assert arguments_after(command, "--rwdir") == ["/job", "/w", "/results"]


def test_inside_it_is_the_guests_program_that_runs_the_job() -> None:
    (arguments,) = arguments_after(a_job().command(Path("/a job")), "--exec")
    assert shlex.split(arguments) == [sys.executable, "-I", "-S", guest.__file__, "/a job", "run_in_vm"]


def test_only_a_machine_whose_kvm_works_uses_it() -> None:
    assert "--disable-kvm" in a_job().command(Path("/job"))
    assert "--disable-kvm" not in a_job(fast=True).command(Path("/job"))


# ------------------------------------------------------------------------------ a kernel for it


def image(place: Path, name: str, config: str = "") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).touch()
    (place / name.replace("vmlinuz", "config")).write_text(config)
    return place / name


def test_the_newest_image_is_first_wherever_it_lies(tmp_path: Path) -> None:
    older = image(tmp_path / "boot", "vmlinuz-6.1.0-9-amd64")
    newer = image(tmp_path / "fetched", "vmlinuz-6.1.0-10-amd64")
    assert vm.kernel_images(tmp_path / "boot", tmp_path / "fetched") == [newer, older]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing but what a test puts into this folder of programs."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vm, "images_here", lambda: vm.kernel_images(tmp_path / "boot"))
    monkeypatch.setattr(vm, "accelerated", lambda: False)
    return tmp_path


def install(here: Path, *names: str, script: str = ":") -> None:
    for name in names:
        (here / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (here / "bin" / name).chmod(0o755)


def test_all_that_is_missing_is_reported_with_what_to_type(here: Path) -> None:
    survey = vm.survey_vm()
    assert survey.unusable == "not here: vng, qemu-system-x86_64, busybox, depmod, a kernel"
    assert survey.fix == (
        "pipx install virtme-ng; apt-get install qemu-system-x86 busybox-static kmod; kproxy lab kernel fetch"
    )
    install(here, "vng", *vm.PACKAGES)
    assert vm.survey_vm().fix == "kproxy lab kernel fetch"


def test_what_a_kernel_can_do_is_read_from_its_configuration_and_that_is_reported(here: Path) -> None:
    install(here, "vng", *vm.PACKAGES)
    image(here / "boot", "vmlinuz-6.1", "CONFIG_NET_NS=y\nCONFIG_VETH=m\n")
    survey = vm.survey_vm()
    assert not survey.unusable
    assert not survey.obstacles[Ability.VETH]
    assert survey.obstacles[Ability.IP_VS]
    assert "by its configuration, not booted, slow" in survey.what


APT = """
case "$1" in
depends) printf '%s\\n' linux-image-amd64 '  Depends: linux-image-6.1.0-56-amd64' '  Conflicts: other' ;;
download) touch "$2.deb" ;;
-x) mkdir -p "$3/boot" "$3/lib/modules/6.1"; touch "$3/boot/vmlinuz-6.1.0-56-amd64" ;;
esac
"""


def test_a_kernel_is_fetched_with_its_modules_and_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    install(tmp_path, "apt-cache", "apt-get", "dpkg-deb", script=APT)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(vm, "fetched_folder", lambda: tmp_path / "vm")
    reported: list[str] = []
    for _ in range(2):
        path = vm.fetch_vm_kernel("", reported.append)
        assert path == tmp_path / "vm/linux-image-6.1.0-56-amd64/boot/vmlinuz-6.1.0-56-amd64"
        assert path.exists()
        assert (path.parents[1] / "lib/modules/6.1").is_dir()
    assert reported[0] == "apt fetches linux-image-6.1.0-56-amd64"
    assert [place.name for place in (tmp_path / "vm").iterdir()] == ["linux-image-6.1.0-56-amd64"]
    install(tmp_path, "apt-cache", script="echo linux-image-amd64")
    with pytest.raises(LabError, match="apt-get update"):
        vm.fetch_vm_kernel("", reported.append)


# ------------------------------------------------------------------------------ inside


def visit(folder: Path, *argv: str) -> subprocess.Popen[bytes]:
    """The guest's program, with a job in a folder as a launcher leaves it."""
    job = vm.VmJob(kernel=Path("/k"), argv=argv, environment=dict(os.environ), cwd=folder)
    (folder / "job.json").write_text(json.dumps(job.document()))
    for name in ("out", "error", "orders"):
        (folder / name).touch()
    return subprocess.Popen((sys.executable, "-I", "-S", guest.__file__, str(folder), "run_in_vm"))


def test_a_visitor_runs_its_job_and_writes_down_how_it_ended(tmp_path: Path) -> None:
    with visit(tmp_path, "/bin/sh", "-c", "pwd; echo no >&2; exit 7") as process:
        process.wait(PATIENCE)
    assert (tmp_path / "out").read_text() == f"{tmp_path}\n"
    assert (tmp_path / "error").read_text() == "no\n"
    assert (tmp_path / "status").read_text() == "7"


def test_orders_that_are_written_down_reach_the_command(tmp_path: Path) -> None:
    script = "trap 'echo signalled; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    with visit(tmp_path, "/bin/sh", "-c", script) as process:
        deadline = time.monotonic() + PATIENCE
        while "ready" not in (tmp_path / "out").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        with (tmp_path / "orders").open("a") as orders:
            orders.write(f"{signal.SIGINT.name}\n")
        process.wait(PATIENCE)
    assert (tmp_path / "out").read_text() == "ready\nsignalled\n"
    assert (tmp_path / "status").read_text() == "3"
