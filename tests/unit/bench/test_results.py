"""What the bench concludes from its samples."""

import io
import os
import re
import subprocess
import sys
import time

import msgspec
import pytest
from rich.console import Console

from tests.bench.__main__ import _parser
from tests.bench.process import Tree
from tests.bench.report import show
from tests.bench.results import Cost, Floor, Result, document, growth
from tests.support.paths import ROOT

FLOOR = Floor(
    whole={"flush": [Cost(3.0, 1.0), Cost(2.0, 1.0)], "noflush": [Cost(2.5, 2.0)]}, service=[0.1, 0.2, 9.0]
)


def result(**fields: object) -> Result:
    known: dict[str, object] = {
        "subject": "some",
        "mode": "iptables",
        "variant": "nft",
        "size": "10x1",
        "starts": [Cost(5.0, 4.0), Cost(3.0, 2.5)],
        "first": [4.0, 2.5],
        "changes": [0.3, 0.5, 7.0],
        "cpu_per_change": 0.1,
        "additions": [0.2],
        "daemon_peak": 100_000_000,
        "tree_peak": 120_000_000,
        "rules": 17,
        "floor": FLOOR,
    }
    return Result(**{**known, **fields})  # type: ignore[arg-type]


def missed(found: Result) -> set[str]:
    return {goal.name.partition(" ")[0] for goal in found.goals() if not goal.reached}


def test_the_best_first_programming_is_set_against_the_best_run_of_the_best_way() -> None:
    assert FLOOR.best_way == "flush"
    assert result().first_ratio == 2.5 / 2.0


def test_the_cpu_seconds_are_those_of_the_best_way() -> None:
    assert result().start_cpu_ratio == 2.5 / 1.0
    assert result(floor=None).start_cpu_ratio is None


def test_the_median_change_is_set_against_the_median_floor() -> None:
    assert result().change_ratio == 0.5 / 0.2


def test_each_goal_is_reached_on_its_bound_and_missed_just_above() -> None:
    good = result(first=[5.0], changes=[0.6], daemon_peak=250_000_000)
    assert missed(good) == set()
    assert missed(result(first=[5.01])) == {"first"}
    assert missed(result(changes=[0.61])) == {"endpoint"}
    assert missed(result(daemon_peak=250_000_001)) == {"peak"}


def test_memory_has_a_goal_up_to_fifty_thousand_endpoints() -> None:
    assert missed(result(size="10000x5", daemon_peak=250_000_001)) >= {"peak"}
    assert not {goal.name for goal in result(size="5000x50").goals()} & {"peak memory of the daemon, MB"}


def test_in_nftables_mode_the_start_counts_from_the_process_on() -> None:
    good = result(mode="nftables", starts=[Cost(9.0, 1.0), Cost(6.0, 1.0)], changes=[0.6], first=[99.0])
    assert missed(good) == set()
    assert missed(result(mode="nftables", starts=[Cost(6.01, 1.0)], changes=[0.6])) == {"start"}


def test_changes_of_a_large_cluster_are_set_against_those_of_the_smallest() -> None:
    sizes = {"10000x5": [0.2, 0.3, 9.0], "1000x5": [0.1, 0.2, 0.3], "5000x50": [0.31], "2000x5": [9.0]}
    found = growth([result(mode="nftables", size=size, changes=changes) for size, changes in sizes.items()])
    assert [(goal.name.partition(": ")[2], goal.reached) for goal in found] == [
        ("endpoint change at 10000x5 / at 1000x5", True),
        ("endpoint change at 5000x50 / at 1000x5", False),
    ]
    assert [goal.value for goal in found] == pytest.approx([1.5, 1.55])


def test_where_rules_grow_with_the_cluster_changes_may_too() -> None:
    assert growth([result(size=size) for size in ("1000x5", "10000x5")]) == ()


def test_a_table_has_a_row_for_each_proxy_and_one_for_their_floor() -> None:
    console = Console(width=220, file=io.StringIO())
    show(console, [result(), result(subject="other", changes=[5.0]), result(size="20x1", floor=None)])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line.split("│")[1:4] for line in text.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["some iptables nft", "10x1", "3.00 (..5.00)"],
        ["other iptables nft", "10x1", "3.00 (..5.00)"],
        ["bare tool (flush)", "10x1", "2.00 (..3.00)"],
        ["some iptables nft", "20x1", "3.00 (..5.00)"],
    ]


def test_without_a_floor_only_memory_is_judged() -> None:
    assert [goal.name for goal in result(floor=None).goals()] == ["peak memory of the daemon, MB"]


def test_the_document_holds_every_sample() -> None:
    entry = msgspec.json.decode(msgspec.json.encode(document([result()], {"kernel": "k"})))
    assert entry["environment"] == {"kernel": "k"}
    (found,) = entry["results"]
    assert found["first_programming_seconds"] == [4.0, 2.5]
    assert found["start"] == [{"seconds": 5.0, "cpu": 4.0}, {"seconds": 3.0, "cpu": 2.5}]
    assert found["endpoint_change_seconds"] == [0.3, 0.5, 7.0]
    assert found["floor"]["whole"]["noflush"] == [{"seconds": 2.5, "cpu": 2.0}]
    assert [goal["reached"] for goal in found["goals"]] == [True, True, True]


BURN = "import time\nend = time.process_time() + {0}\nwhile time.process_time() < end: pass\n"


def test_a_tree_counts_ended_and_living_children_but_no_other_process() -> None:
    child = [sys.executable, "-c", BURN.format(0.2)]
    script = (
        f"import subprocess, sys, time\n"
        f"subprocess.run({child!r}, check=True)\n"
        f"other = subprocess.Popen({child!r})\n"
        f"print('ready', flush=True)\n"
        f"sys.stdin.read()\n"
        f"other.wait()\n"
    )
    program = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, start_new_session=True) as leader:
        assert leader.stdin is not None
        assert leader.stdout is not None
        leader.stdout.readline()
        tree = Tree(leader.pid)
        first = tree.cpu()
        deadline = time.monotonic() + 20
        while tree.cpu() < first + 0.15 and time.monotonic() < deadline:
            time.sleep(0.02)
        second = tree.cpu()
        leader.stdin.close()
    assert first >= 0.2
    assert first + 0.15 <= second < 5
    assert Tree(os.getpid()).pid == os.getpid()


def test_the_peak_of_a_tree_sees_a_childs_memory_and_the_daemons_own_does_not() -> None:
    size = 60_000_000
    child = [sys.executable, "-c", f"import time; held = b'x' * {size}; time.sleep(0.6)"]
    script = (
        f"import subprocess, sys\nsubprocess.run({child!r}, check=True)\n"
        f"print('done', flush=True)\nsys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    program = [sys.executable, "-c", script]
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, start_new_session=True) as leader:
        assert leader.stdin is not None
        assert leader.stdout is not None
        tree = Tree(leader.pid)
        with tree.watched():
            leader.stdout.readline()
        own = tree.daemon_peak()
        leader.stdin.close()
    assert own < size < tree.peak


def test_every_option_is_on_the_page_and_no_other() -> None:
    page = (ROOT / "docs/bench.md").read_text(encoding="utf-8")
    documented = {
        word
        for row in re.findall(r"^\| (`--.+?`) \|", page, re.MULTILINE)
        for word in re.findall(r"--[a-z-]+", row)
    }
    assert documented == {word for action in _parser()._actions for word in action.option_strings} - {
        "-h",
        "--help",
        "--patience",  # the former name of --sync-timeout, in this release only
    }
