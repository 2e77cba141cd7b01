"""The house as one table: which room may import which.  The table is the architecture; the test keeps it true.

Top imports from below, never back.  A room is a module or a package under ``kproxy``; a module belongs
to the longest row that fits it (``*`` is any one name).  Within a room everything may import everything.
"""

import ast
import graphlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src"

MODEL = {"model.network", "model.api"}
PIPE = MODEL | {"proxy.snapshot", "proxy.plan"}
BACKENDS = {"proxy.backends", "proxy.backends.*", "proxy.backends.*.kernel"}
MAY_IMPORT: dict[str, set[str]] = {
    # the values that both halves speak in
    "model": set(),
    "model.network": set(),
    "model.api": {"model.network"},
    # the machine
    "tls": set(),
    "console": set(),
    # what programs read of a command's output
    "documents": set(),
    # the table of options: of every command, of pytest, of the Action and of the documentation
    "options": set(),
    "linux": {"model.network"},
    # any proxy's rules as values, which backends build and readers read, and the walk of a packet through them
    "linux.netfilter": {"model.network"},
    # the proxy: cluster objects in, what this node must do out; pure
    "proxy": set(),
    "proxy.snapshot": MODEL,
    "proxy.plan": {"proxy.snapshot", *MODEL},
    # a backend knows the plan and itself; only its kernel package touches the machine
    "proxy.daemon.config.duration": set(),
    "proxy.daemon.config.configuration": {"proxy.daemon.config.duration", "model.network"},
    # protocol and registry; the modes are found by name
    "proxy.backends": {"proxy.plan", "model.network", "linux", "proxy.daemon.config.configuration"},
    # the matches of this node's pods
    "proxy.backends.pods": {"proxy.plan", "linux.netfilter"},
    # the matches of addresses that accept node ports
    "proxy.backends.node_ports": {"proxy.plan", "linux.netfilter", "model.network"},
    # the rules and tools of iptables, for the modes that use them
    "proxy.backends.xtables": {"model.network", "linux.netfilter"},
    "proxy.backends.xtables.kernel": {"proxy.backends.xtables", "model.network", "linux", "linux.netfilter"},
    "proxy.backends.*": {
        *("proxy.plan", "model.network", "linux.netfilter"),
        *("proxy.backends", "proxy.backends.pods", "proxy.backends.node_ports", "proxy.backends.xtables"),
    },
    "proxy.backends.*.kernel": {
        *("proxy.backends.*", "proxy.backends", "proxy.plan", "model.network", "linux", "linux.netfilter"),
        *("proxy.backends.xtables", "proxy.backends.xtables.kernel"),
        "proxy.daemon.config.configuration",
    },
    "proxy.backends.*.backend": {
        *("proxy.plan", "proxy.backends", "proxy.backends.*.kernel", "model.network", "linux"),
        "proxy.daemon.config.configuration",
    },
    # sockets that serve what a mode's rules cannot
    "proxy.relay": {"proxy.plan", "model.network", "linux"},
    # which modes there are only the registry knows
    "proxy.daemon": PIPE
    | {"proxy.backends", "proxy.relay", "linux", "tls", "documents"}
    | {"proxy.daemon.config.configuration", "proxy.daemon.config.duration"},
    # the specification shares no policy code with the proxy, or their agreement would prove nothing
    "spec": MODEL,
    # namespaces, probes, an API server; nothing of the proxy
    "lab": {"lab.topology", *MODEL, "linux", "tls", "console", "documents"},
    "lab.topology": {"model.network"},
    # judging any proxy: nothing of ours is known but in the simulator, which command opens
    "conformance": {
        *MODEL,
        *("spec", "lab", "lab.topology", "linux", "linux.netfilter", "tools.trace", "tools.trace.live"),
        *("tls", "console", "documents", "options"),
    },
    "conformance.testbeds.simulator": PIPE
    | BACKENDS
    | {
        *("conformance", "proxy.backends.xtables", "proxy.relay", "linux", "linux.netfilter"),
        *("spec", "lab.topology"),
    },
    # universes from seeds: conformance's terms and lab, the oracle over time
    "universes": {*MODEL, "conformance", "lab", "lab.topology", "spec", "console", "documents"},
    # what pytest finds: inactive until it is selected
    "pytest_plugin": {"conformance"},
    "conformance.command": {"conformance", "conformance.testbeds.simulator", "spec", "console", "documents"},
    "conformance.generate.command": {"conformance", "conformance.command", "console", "documents"},
    "conformance.testbeds.cluster.command": {"conformance", "conformance.command", "lab", "console"},
    # commands for people
    "tools": set(),
    # the specification queried by people: reads what kubectl printed
    "tools.explain": {"spec", *MODEL, "documents"},
    # one ID of the specification, with the places that cite it; reads the names of chains for mutants
    "tools.reference": {"spec", "conformance", "documents"},
    # one packet through the rules of a node; only reading a live node has effects
    "tools.trace": {"linux.netfilter", "tools.explain", *MODEL},
    "tools.trace.live": {"tools.trace", "linux.netfilter", "linux", "model.network"},
    "tools.trace.relay": {"tools.trace", "proxy.relay", "linux.netfilter", "model.network"},
    "tools.trace.command": {
        "tools.trace",
        "tools.trace.live",
        "tools.trace.relay",
        "linux.netfilter",
        "tools.explain",
        *MODEL,
        "documents",
    },
    # somebody's cluster in the lab: one kept running, two compared
    "tools.lab_session": {
        *("tools.explain", "spec", *MODEL, "linux", "lab", "lab.topology", "conformance", "options"),
        "documents",
    },
    "tools.compare": {
        "tools.lab_session",
        "tools.explain",
        "spec",
        *MODEL,
        "lab",
        "lab.topology",
        "conformance",
        "documents",
    },
    # the composition root: nothing imports it
    "cli": PIPE
    | BACKENDS
    | {
        "options",
        "documents",
        "tools.explain",
        "tools.reference",
        "tools.trace.command",
        "tools.lab_session",
        "tools.compare",
        "proxy.daemon",
        "conformance",
        "conformance.command",
        "conformance.generate.command",
        "conformance.testbeds.cluster.command",
        "universes",
        "lab",
        "lab.topology",
        "spec",
        "linux",
    },
    "__main__": {"cli"},
}

PURE = (
    *("model", "model.network", "model.api", "proxy.snapshot", "proxy.plan", "proxy.backends.*"),
    *("proxy.backends.xtables", "proxy.backends.pods", "proxy.backends.node_ports"),
    *("spec", "linux.netfilter", "tools.trace", "lab.topology"),
)
_CLUSTER = "kproxy.conformance.testbeds.cluster"
PURE_MODULES = (
    *("kproxy.proxy.relay.table", "kproxy.proxy.relay.choice", "kproxy.proxy.relay.portals"),
    *("kproxy.conformance.case", "kproxy.conformance.binding.bind", "kproxy.conformance.cases"),
    *(
        f"{_CLUSTER}.{name}"
        for name in (
            "address_map",
            "object_map",
            "limits",
            "wire",
            "messages",
            "permutation",
            "cluster_topology",
        )
    ),
)
"""Modules that open nothing, log nothing and read no clock, within rooms that are not pure as a whole."""

EFFECTS = {
    "asyncio", "concurrent", "datetime", "http", "logging", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
    "aiohttp", "rich", "yaml",
}  # fmt: skip

LONGEST_MODULE = 450
LONGEST_FUNCTION = 60
MOST_MODULES = 45


def modules() -> dict[str, Path]:
    names = {}
    for path in sorted((SOURCE / "kproxy").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


MODULES = modules()


def room_of(module: str) -> tuple[str, str]:
    """The longest row that fits, and what its ``*`` stands for; two empty strings for ``kproxy`` itself."""
    parts = module.split(".")[1:]
    for size in range(len(parts), 0, -1):
        for row in MAY_IMPORT:
            pattern = row.split(".")
            if len(pattern) == size and all(p in ("*", own) for p, own in zip(pattern, parts, strict=False)):
                return row, parts[pattern.index("*")] if "*" in pattern else ""
    return "", ""


def imports_of(tree: ast.Module, module: str, *, package: bool = False) -> Iterator[str]:
    """Every module that is imported, anywhere in the file, as an absolute name."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                parts = module.split(".")
                above = parts[: len(parts) - level + package] if level else []
                origin = ".".join([*above, *([base] if base else [])])
                yield from (
                    f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in MODULES else origin
                    for alias in names
                )
            case _:
                pass


def forbidden_imports(module: str, source: str, *, package: bool = False) -> list[str]:
    """What a module imports of ours that its room may not."""
    row, star = room_of(module)
    wrong = []
    for imported in imports_of(ast.parse(source), module, package=package):
        other, other_star = room_of(imported)
        another_backend = star and other_star and star != other_star
        if imported.startswith("kproxy.") and (
            another_backend or other not in MAY_IMPORT.get(row, set()) | {row}
        ):
            wrong.append(imported)
    return wrong


def effects(module: str, source: str) -> list[str]:
    """What a pure module imports that could open, log, wait or read the clock."""
    imported = {name.split(".")[0] for name in imports_of(ast.parse(source), module)}
    return sorted(imported & EFFECTS)


def is_pure(module: str) -> bool:
    return room_of(module)[0] in PURE or f"{module}.".startswith(tuple(f"{name}." for name in PURE_MODULES))


def source_of(module: str) -> str:
    return MODULES[module].read_text(encoding="utf-8")


def is_package(module: str) -> bool:
    return MODULES[module].name == "__init__.py"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    wrong = forbidden_imports(module, source_of(module), package=is_package(module))
    row, _ = room_of(module)
    assert not wrong, (
        f"{module} is in room {row!r}, which may import {sorted(MAY_IMPORT.get(row, ()))} and itself, "
        f"not {wrong}. Move the code to where both may see it, or pass the value in."
    )


@pytest.mark.parametrize("module", [name for name in MODULES if is_pure(name)])
def test_a_pure_module_can_have_no_effect(module: str) -> None:
    wrong = effects(module, source_of(module))
    assert not wrong, (
        f"{module} is pure and imports {wrong}. Time, randomness and what was read come in as arguments; "
        "reasons go out as data (`Plan.notes`). Effects belong to host, server, lab, cli or a backend's kernel."
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_one_idea_short_enough_to_read(module: str) -> None:
    lines = source_of(module).count("\n")
    assert lines <= LONGEST_MODULE, (
        f"{module} has {lines} lines, {LONGEST_MODULE} are allowed (aim at 250). "
        "Find the second idea in it and give it a module of its own; do not squeeze lines."
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_function_fits_on_a_screen(module: str) -> None:
    long = {
        node.name: lines
        for node in ast.walk(ast.parse(source_of(module)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    }
    assert not long, (
        f"{module}: {long} lines, {LONGEST_FUNCTION} are allowed (aim at 10). What sinks service proxies is "
        "their longest function: name the steps, and make each a function of values."
    )


def test_a_folder_has_no_more_modules_than_a_reader_takes_in() -> None:
    folders = Counter(path.parent for top in ("src", "tests") for path in (ROOT / top).rglob("*.py"))
    assert max(folders.values()) > MOST_MODULES // 2, "positive control"
    full = {str(folder.relative_to(ROOT)): n for folder, n in folders.items() if n > MOST_MODULES}
    assert not full, (
        f"{full} modules, {MOST_MODULES} are allowed: merge small ones, or make a folder of an idea"
    )


def test_every_module_has_a_room() -> None:
    homeless = [name for name in MODULES if name != "kproxy" and not room_of(name)[0]]
    assert not homeless, f"give {homeless} a row in MAY_IMPORT: what may it import, and who may import it?"


@pytest.mark.parametrize("row", MAY_IMPORT)
def test_every_room_of_the_table_exists(row: str) -> None:
    assert row in {room_of(name)[0] for name in MODULES}, f"no module is in {row!r}: take the row out"


def test_the_table_has_no_way_back() -> None:
    assert list(graphlib.TopologicalSorter(MAY_IMPORT).static_order())


def test_the_table_names_only_its_own_rows() -> None:
    assert {other for may in MAY_IMPORT.values() for other in may} <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("kproxy.spec.oracle", "from kproxy.proxy.plan import Pool"),
        ("kproxy.spec.oracle", "from kproxy.proxy import snapshot"),
        ("kproxy.proxy.plan", "import kproxy.proxy.backends.iptables"),
        ("kproxy.proxy.backends.iptables.compile", "from kproxy.model.api import Service"),
        ("kproxy.proxy.backends.iptables.compile", "from kproxy.linux.host import Host"),
        ("kproxy.proxy.backends.nftables.kernel", "from kproxy.proxy.backends.iptables.rules import Chain"),
        ("kproxy.proxy.backends.nftables.kernel", "from ..iptables.rules import Chain"),
        ("kproxy.conformance.engine.runner", "from kproxy.proxy.plan import Plan"),
        ("kproxy.conformance.engine.runner", "def late():\n    from kproxy.proxy.backends import iptables"),
        ("kproxy.proxy.daemon.sync.family_sync", "from kproxy.conformance.case import Case"),
        ("kproxy.proxy.daemon.startup", "from kproxy.proxy.backends.ipvs.names import DEVICE"),
        ("kproxy.model.network", "from kproxy.model.api import Cluster"),
    ],
)
def test_the_check_sees_a_wrong_import(module: str, line: str) -> None:
    assert forbidden_imports(module, line)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("kproxy.spec.oracle", "from kproxy.model.api import Service"),
        ("kproxy.spec.oracle", "from kproxy.spec.outcome import Failure"),
        ("kproxy.proxy.backends.iptables.kernel", "from kproxy.proxy.backends.iptables.rules import Chain"),
        ("kproxy.proxy.backends.iptables.kernel", "from kproxy.linux.host import run_tool"),
        ("kproxy.conformance.testbeds.simulator", "from kproxy.proxy.plan import Plan"),
        ("kproxy.cli", "from kproxy.model import api"),
        ("kproxy.model.network", "import ipaddress"),
    ],
)
def test_the_check_lets_a_right_import_pass(module: str, line: str) -> None:
    assert not forbidden_imports(module, line)


@pytest.mark.parametrize("line", ["import time", "from os import environ", "def f():\n    import socket"])
def test_the_check_sees_an_effect(line: str) -> None:
    assert effects("kproxy.proxy.plan", line)


def test_effects_are_real_modules_of_the_standard_library_or_of_a_dependency() -> None:
    declared = (SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8")
    unknown = {name for name in EFFECTS if name not in sys.stdlib_module_names}
    assert {name for name in unknown if f'"{name}>=' not in declared} <= {"yaml"}


def test_no_module_imports_a_test_module() -> None:
    """What tests share is in tests/support; a test module that is imported runs its tests twice, or holds helpers."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert len(paths) > 300
    imports = re.compile(r"^ *(?:from|import) .*\btest_\w+", re.MULTILINE)
    assert imports.search("from tests.netns.test_ports import stage"), "positive control"
    assert [str(path) for path in paths if imports.search(path.read_text(encoding="utf-8"))] == []
