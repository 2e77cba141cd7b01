"""A kernel build from apt to the cache, with programs that only pretend: what is kept, what is reported, what is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kproxy.lab.kernels import build
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.kernels.build import SELF_TEST, Recipe
from kproxy.lab.namespaces import LabError
from tests.support.waiting import eventually

MAKE = """
case "$*" in
*allnoconfig) cp kproxy.config .config ;;
*linux) %s
    echo "  CC      one.o"; printf '#!/bin/sh\\necho 6.1.2-kproxy\\n' > linux; chmod +x linux ;;
esac
"""
PROGRAMS = {
    "apt-cache": 'echo "linux-source-6.1 - one"; echo "linux-source-6.12 - two"',
    "apt-get": 'touch "$2.deb"',
    "dpkg-deb": 'mkdir -p "$3/usr/src"; tar -cJf "$3/usr/src/linux.tar.xz" -C "$(dirname "$0")" linux-1',
    "make": MAKE % "",
    **dict.fromkeys(("gcc", "flex", "bison", "bc", "strip"), ":"),
}
GOOD: Mapping[Ability, str] = dict.fromkeys(SELF_TEST, "")


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Programs of a build that do nothing worth waiting for, and a way to change one."""
    place = tmp_path / "bin"
    (place / "linux-1").mkdir(parents=True)
    (place / "linux-1/Makefile").touch()

    def write(**scripts: str) -> None:
        for name, script in scripts.items():
            (place / name).write_text(f"#!/bin/sh\n{script}\n")
            (place / name).chmod(0o755)

    write(**PROGRAMS)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setattr(build, "PACKAGES", {})
    return write


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache/kproxy/kernels"


def built(cache: Path, obstacles: Mapping[Ability, str] = GOOD) -> tuple[Path, list[str]]:
    reported: list[str] = []
    return build.build_uml_kernel(Recipe(cache=cache), lambda _: obstacles, reported.append), reported


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"build.lock"}


def test_the_newest_source_becomes_a_kernel_in_the_cache(cache: Path) -> None:
    path, reported = built(cache)
    assert path == cache / "linux-6.1.2-kproxy"
    assert names(cache) == {path.name}
    assert reported[0] == "apt fetches linux-source-6.12"
    assert any(line.startswith("compiling, 0 s, 1 of some ") for line in reported)


def test_a_kernel_that_fails_its_self_test_is_not_kept(cache: Path) -> None:
    with pytest.raises(LabError, match=r"thrown away: sctp: Protocol not supported"):
        built(cache, {**GOOD, Ability.SCTP: "Protocol not supported", Ability.TIME_TRAVEL: "no"})
    assert names(cache) == set()


def test_a_build_that_fails_shows_its_last_output_and_keeps_its_log(
    cache: Path, programs: Callable[..., None]
) -> None:
    programs(make=MAKE % 'echo "one.c:1: error: no such thing"; exit 2')
    with pytest.raises(LabError, match=r"one\.c:1: error: no such thing") as failed:
        built(cache)
    assert str(cache / "build.log") in str(failed.value)
    assert names(cache) == {"build.log"}


def test_what_apt_reports_is_reported(cache: Path, programs: Callable[..., None]) -> None:
    programs(**{"apt-get": "echo 'E: Failed to fetch' >&2; exit 100"})
    with pytest.raises(LabError, match=r"apt-get download linux-source-6\.12: exit 100: E: Failed to fetch"):
        built(cache)
    assert names(cache) == set()


def test_programs_of_the_self_test_are_requested_before_anything_is_built(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PACKAGES", {"no-such-program": "its-package"})
    with pytest.raises(LabError, match="apt-get install its-package"):
        built(cache)
    assert not cache.exists()


def test_what_a_killed_build_has_left_goes(cache: Path) -> None:
    (cache / "build-left/source").mkdir(parents=True)
    built(cache)
    assert names(cache) == {"linux-6.1.2-kproxy"}


SCRIPT = """
import sys
from pathlib import Path
from kproxy.lab.kernels import build
build.PACKAGES = {}
build.build_uml_kernel(build.Recipe(cache=Path(sys.argv[1])), lambda _: {}, lambda text: print(text, flush=True))
"""


@pytest.fixture
def under_way(cache: Path, programs: Callable[..., None]) -> Iterator[subprocess.Popen[str]]:
    """A build that compiles for a long time, as a process."""
    programs(make=MAKE % f'echo "  CC      slow.o"; sleep 1000.{os.getpid()} & wait')
    process = subprocess.Popen(
        (sys.executable, "-c", SCRIPT, str(cache)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    while "compiling" not in (line := process.stdout.readline()):
        assert line, "the build ended before it began"
    yield process
    process.kill()
    for number in compilers():
        os.kill(number, signal.SIGKILL)


def compilers() -> list[int]:
    """Processes that pretend to compile."""
    listed = subprocess.run(("ps", "-eo", "pid,args"), capture_output=True, text=True, check=True).stdout
    mine = [line.split(maxsplit=1) for line in listed.splitlines()]
    return [int(number) for number, arguments in mine if arguments == f"sleep 1000.{os.getpid()}"]


def test_an_interrupted_build_leaves_no_process_and_no_file(
    cache: Path, under_way: subprocess.Popen[str]
) -> None:
    assert eventually(compilers)  # the build reports that it compiles before its tools have begun
    under_way.send_signal(signal.SIGINT)
    _, error = under_way.communicate(timeout=20)
    assert "KeyboardInterrupt" in error
    assert compilers() == []
    assert names(cache) == set()


def test_two_builds_do_not_meet_and_one_that_was_killed_is_in_nobodys_way(
    cache: Path, under_way: subprocess.Popen[str], programs: Callable[..., None]
) -> None:
    with pytest.raises(LabError, match="another build is under way"):
        built(cache)
    under_way.kill()
    under_way.communicate(timeout=20)
    programs(make=PROGRAMS["make"])
    assert built(cache)[0].exists()
    assert names(cache) == {"linux-6.1.2-kproxy"}
