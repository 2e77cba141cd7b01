"""The pages on backends name tests that exist, and the chains of iptables mode that the code writes."""

import re
from pathlib import Path

import pytest

from kproxy.proxy.backends.iptables import names
from tests.support.paths import ROOT

PAGES = sorted((ROOT / "docs/backends").glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_test_that_a_page_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    sources = [found.read_text(encoding="utf-8") for found in (ROOT / "tests").rglob("*.py")]
    defined = {name for source in sources for name in re.findall(r"def (test_\w+)", source)}
    files = {found.stem for found in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"\btest_\w+", text)) <= defined | files


def test_the_chains_of_iptables_mode_are_those_of_the_code() -> None:
    page = (ROOT / "docs/backends/iptables.md").read_text(encoding="utf-8")
    table = page.partition("| Chain | Table |")[2].partition("\n\n")[0]
    written = {name.removesuffix("-x").removesuffix("-e") for name in re.findall(r"`(KUBE-[\w-]+)`", table)}
    fixed = {name for chains in names.OWN_CHAINS.values() for name in chains} | {names.FIREWALL, names.TRIAL}
    assert written == fixed | {prefix.removesuffix("-") for prefix in names.DERIVED_PREFIXES}
