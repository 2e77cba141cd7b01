"""Sessions of tests, checks and benches; ``nox -l`` lists them.

nox alone makes an environment for each session, with the package installed from a wheel.  ``./run tests`` runs the same
sessions in the one ``.venv`` (``--no-venv --no-install``), which is quicker.  Arguments after ``--`` are passed to the
session's tool.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.stop_on_first_error = False

signal.signal(signal.SIGTERM, signal.default_int_handler)
"""On SIGTERM nox would exit alone; an interrupt it passes on to its tools, and they to their guests."""

JUDGE_KPROXY = ("kproxy", "conformance", "run", "--proxy", "kproxy", "--mode")

IPVS_GROUPS = ("cluster-ip", "internal-policy", "external-policy", "source-ranges", "terminating")
"""Groups of cases for a minute of User-Mode Linux; `kproxy conformance run --mode ipvs --kernel uml` runs the whole catalogue."""

IN_LABS_OF_THEIR_OWN = ("source-ranges.*of-the-node", "external-policy.pods-unknown")
"""Cases of these groups that each need a lab of their own: two more labs take the packaged kernel as long as all else together."""

PURE = (
    "tests/unit/spec",
    "tests/unit/model",
    "tests/unit/proxy/snapshot",
    "tests/unit/proxy/plan",
    "tests/unit/proxy/backends",
    "tests/unit/conformance/cases/test_catalogue.py",
)
"""Tests of the pure packages, which are measured for coverage: a tracer makes a test about twice as slow."""

QUICK, LONG = "-mnot long", "-mlong"
"""Options of pytest: the tests that each change is tested by, and the others."""

UNIT_TOGETHER = ("--numprocesses=auto", "--dist=loadfile")
"""Options of pytest-xdist: a file's tests in one process, since they often share what takes long to compute."""

NETNS_TOGETHER = ("--numprocesses=6", "--dist=worksteal")
"""Options of pytest-xdist: tests of namespaces mostly wait, so six run at a time, on two cores too."""

BUDGETS = tuple(f"tests/netns/test_{name}.py" for name in ("budgets", "isolation"))
"""Test modules that measure processor time, memory or the machine itself, and therefore run alone."""


def need_root(session: nox.Session) -> None:
    """Fail the session without root: a session that ran nothing must not pass."""
    if os.geteuid() != 0:
        session.error(f"network namespaces need root: run `sudo nox -s {session.name}` or `./run tests`")


@nox.session
def lint(session: nox.Session) -> None:
    """Style, spelling, formatting, generated pages; ``nox -s lint -- --fix`` corrects what it can."""
    session.install(".[lint]")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *(() if "--fix" in session.posargs else ("--check", "--diff")))
    session.run("codespell")
    session.run("python", "-m", "tools.docgen", *(() if "--fix" in session.posargs else ("--check",)))


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, on the package, the tests and this file."""
    session.install(".[lint,test,kind]", "nox")
    session.run("mypy", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """Tests without root and network: pure functions; the oracle; every case in the simulator."""
    session.install(".[test]", "nox")
    session.run("pytest", "tests/unit", *UNIT_TOGETHER, *(session.posargs or (QUICK,)))


@nox.session(default=False)
def netns(session: nox.Session) -> None:
    """Tests on this machine's kernel, in network namespaces of their own (root)."""
    need_root(session)
    session.install(".[test]")
    others = (f"--ignore={path}" for path in BUDGETS)
    session.run(
        "pytest", "tests/netns", "--timeout=300", *others, *(session.posargs or (QUICK, *NETNS_TOGETHER))
    )


@nox.session(default=False)
def long(session: nox.Session) -> None:
    """What takes long and seldom breaks: branch coverage of the pure packages; benches, memory, load, thousands of worlds (root)."""
    need_root(session)
    session.install(".[test]", "nox")
    session.run("pytest", *PURE, "--numprocesses=auto", "--cov")
    session.run("pytest", "tests/unit", "--numprocesses=auto", LONG)
    session.run(
        "pytest", "tests/unit", "-mhypothesis", "--numprocesses=auto", "--hypothesis-profile=thorough"
    )
    session.run("pytest", "tests/netns", "--timeout=300", LONG, *NETNS_TOGETHER)


@nox.session(default=False)
def budgets(session: nox.Session) -> None:
    """Time that a start of the daemon takes, and a machine that is left as it was: nothing else may run meanwhile (root)."""
    need_root(session)
    session.install(".[test]")
    session.run("pytest", *BUDGETS, "--timeout=300", *session.posargs)


@nox.session(default=False)
def conformance(session: nox.Session) -> None:
    """Conformance of kproxy by real packets, in every mode that this machine's kernel supports (root)."""
    need_root(session)
    session.install(".")
    here = ("--kernel", "host", "--skip-missing-kernels")
    session.run("kproxy", "conformance", "run", "--proxy", "kproxy", *here, *session.posargs)


@nox.session(default=False)
def apiserver(session: nox.Session) -> None:
    """The catalogue against etcd and kube-apiserver of ``KUBEBUILDER_ASSETS``; without them it fails with a message (root)."""
    need_root(session)
    session.install(".[test]")
    session.run("pytest", "tests/apiserver")
    for mode in ("iptables", "nftables"):
        session.run(*JUDGE_KPROXY, mode, "--apiserver", "kube", *session.posargs)


@nox.session(default=False)
def ipvs(session: nox.Session) -> None:
    """User-Mode Linux, with the packaged kernel if no other was built: tests of ipvs mode, and a part of the catalogue."""
    session.install(".[test]")
    session.run("pytest", "tests/uml/test_ipvs.py", QUICK)
    chosen = [word for group in IPVS_GROUPS for word in ("--case", f"{group}.*")]
    others = [word for cases in IN_LABS_OF_THEIR_OWN for word in ("--skip", cases)]
    cases = session.posargs or (*chosen, *others)
    session.run("kproxy", "conformance", "run", "--mode", "ipvs", "--kernel", "uml", "--guests=1", *cases)


@nox.session(default=False)
def uml(session: nox.Session) -> None:
    """Tests in User-Mode Linux: a whole run, and tests that take minutes, such as clients at a constant rate."""
    session.install(".[test]")
    session.run("pytest", "tests/uml", "--ignore-glob=*/test_virtual_*.py", "--timeout=300", *session.posargs)


@nox.session(default=False)
def virtual(session: nox.Session) -> None:
    """Virtual time (needs `kproxy lab kernel build`): hours of outage, and the catalogue in every mode, with slow cases."""
    session.install(".[test]")
    session.run("pytest", *map(str, sorted(Path("tests/uml").glob("test_virtual_*.py"))), "--timeout=300")
    session.run("kproxy", "conformance", "run", "--kernel", "uml", "--time", "virtual", *session.posargs)


@nox.session(default=False)
def vm(session: nox.Session) -> None:
    """A distribution's kernel by virtme-ng and qemu: a whole run, and a case (minutes without /dev/kvm)."""
    session.install(".[test]")
    session.run("pytest", "tests/vm", "--timeout=900", *session.posargs)


@nox.session(default=False)
def containers(session: nox.Session) -> None:
    """The image, built here, as nodes' proxy in containers of Docker's engine: the first layer of ``kind`` (root)."""
    need_root(session)
    session.install(".[test,kind]")
    tests = [f"tests/kind/test_{name}.py" for name in ("engine", "k3s", "containers")]
    session.run("pytest", *tests, "--timeout=300", *session.posargs)


@nox.session(default=False)
def kind(session: nox.Session) -> None:
    """Our image as nodes' proxy in containers; in a cluster of this machine's (``KUBEBUILDER_ASSETS``); in kind's or k3s' (``--provider``; root)."""
    need_root(session)
    session.install(".[test,kind]")
    session.run("pytest", "tests/kind", "--timeout=300", *session.posargs)


@nox.session(default=False)
def local(session: nox.Session) -> None:
    """A cluster of real kubelets on this machine, left as it was found (``KUBEBUILDER_ASSETS`` with images; root)."""
    need_root(session)
    session.install(".[test,kind]")
    session.run(
        "pytest", "tests/kind", "-mlocal", "--timeout=600", *(session.posargs or ("-k", "test_local"))
    )


@nox.session(default=False)
def e2e(session: nox.Session) -> None:
    """Kubernetes' own tests of Services in such a cluster, for each proxy and mode (``KUBEBUILDER_ASSETS``; root)."""
    need_root(session)
    session.install(".[test,kind]")
    for proxy in ("kproxy", "kube-proxy"):
        for mode in ("iptables", "nftables"):
            session.run("python", "-m", "tests.e2e", "--proxy", proxy, "--mode", mode, *session.posargs)


@nox.session(default=False)
def shuffle(session: nox.Session) -> None:
    """The catalogue three times in random order: no case may depend on another (root)."""
    need_root(session)
    session.install(".")
    for seed in random.sample(range(10_000), k=3):
        session.run(*JUDGE_KPROXY, "iptables", "--shuffle", str(seed), *session.posargs)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Disable each rule family of the own backends: some case must fail and cite the clause (root)."""
    need_root(session)
    session.install(".[test]")
    session.run("python", "-m", "tests.mutants", *session.posargs)


@nox.session(default=False)
def simulate_mutants(session: nox.Session) -> None:
    """Universes find defects that need a history, and that no case is made for (`kproxy lab kernel build`)."""
    session.install(".[test]")
    session.run("python", "-m", "tests.mutants.simulate", *session.posargs)


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Faults around the daemon, under traffic; writes docs/daemon-faults.md (root, `kproxy lab kernel build`)."""
    need_root(session)
    session.install(".[test]")
    session.run("python", "-m", "tests.faults", *(session.posargs or ("--write",)))


@nox.session(default=False)
def churn(session: nox.Session) -> None:
    """A day of endpoint changes in minutes: the daemon's memory stays flat (root)."""
    need_root(session)
    session.install(".[test]")
    session.run("python", "-m", "tests.bench.churn", *session.posargs)


@nox.session(default=False)
def package(session: nox.Session) -> None:
    """The sdist, and the wheel built from it, installed in a new environment and used in an empty folder (root)."""
    need_root(session)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        session.run("python", "-mvenv", place / "venv")
        programs, empty = place / "venv/bin", place / "empty"
        session.run(programs / "pip", "-q", "install", "build", external=True)
        session.run(programs / "python", "-mbuild", "--outdir", place / "dist", external=True)
        (wheel,) = (place / "dist").glob("*.whl")
        session.run(programs / "pip", "-q", "install", f"{wheel}", "pytest", external=True)
        empty.mkdir()
        with session.chdir(empty):
            _use(session, programs)


@nox.session(default=False)
def readme(session: nox.Session) -> None:
    """README's lines, typed into a container of Debian without this checkout (Docker's engine, mmdebstrap; root)."""
    need_root(session)
    session.install(".[test,kind]")
    session.run("pytest", "tests/kind/test_readme.py", "--timeout=900", *session.posargs)


@nox.session(default=False)
def chart(session: nox.Session) -> None:
    """Helm chart as the overlays (`helm`, `kubectl`); alerts and dashboard by a real Prometheus (`apt-get install prometheus`; root)."""
    need_root(session)
    session.install(".[test]")
    session.run("pytest", "tests/deploy", *session.posargs)


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """A release up to the upload, in build/release; ``nox -s release -- --dry-run`` leaves changelog and fragments as they are."""
    session.install(
        "build", "twine>=6.1", "cyclonedx-bom>=7", "towncrier>=24.8", "hatchling", "packaging", "pyyaml"
    )
    place = Path("build/release").resolve()
    shutil.rmtree(place, ignore_errors=True)
    session.run("python", "-mbuild", "--outdir", place)
    session.run("twine", "check", "--strict", *place.iterdir())
    (wheel,) = place.glob("*.whl")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as name:
        programs = _installed(session, wheel, Path(name) / "venv")
        bill = place / f"kube_kproxy-{version}.cdx.json"
        of_wheel = ("environment", programs / "python", "--output-reproducible", "-o", bill)
        session.run("cyclonedx-py", *of_wheel)
        session.run(programs / "pip", "-q", "install", "pytest", external=True)
        empty = Path(name) / "empty"
        empty.mkdir()
        with session.chdir(empty):
            _use(session, programs, packets=os.geteuid() == 0)
    session.run("python", "-m", "tools.krew", place, version)
    draft = "--draft" if "--dry-run" in session.posargs else "--yes"
    session.run("towncrier", "build", "--version", version, draft)


def _installed(session: nox.Session, wheel: Path, place: Path) -> Path:
    """The programs of a new environment with a wheel, its dependencies and nothing else."""
    session.run("python", "-mvenv", place)
    session.run(place / "bin/pip", "-q", "install", f"{wheel}", external=True)
    return place / "bin"


def _use(session: nox.Session, programs: Path, *, packets: bool = True) -> None:
    """Run the first commands of a user with an installed kproxy, in a temporary folder; ``packets``: real ones too (root)."""
    judge = (programs / "kproxy", "conformance")
    command = "command = ['{python}', '-m', 'kproxy', 'run', '--config', '{config}']"
    Path("mine.toml").write_text(f"name = 'mine'\nmodes = ['nftables']\n{command}\n")
    session.run(*judge, "list", "--case", "affinity.*", external=True)
    session.run(*judge, "show", "affinity.clients-stick", external=True, silent=True)
    session.run(*judge, "run", "--testbed", "simulator", "--mode", "nftables", external=True, silent=True)
    one = ("--case", "cluster-ip.every-endpoint-of-six", "--kernel", "host")
    if packets:
        session.run(*judge, "run", "--proxy", "./mine.toml", *one, external=True)
    items = ("--pyargs", "kproxy.conformance", "-q", "--testbed", "simulator", "--mode", "nftables")
    session.run(programs / "pytest", *items, "-mcluster-ip", external=True)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """The documentation as a site, in build/site; a broken link is an error."""
    session.install(".[docs]")
    session.run("mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """First programming, one change and peak memory, against the bare tools in the same run (root)."""
    need_root(session)
    session.install(".[bench]")
    session.run("python", "-m", "tests.bench", *session.posargs)
