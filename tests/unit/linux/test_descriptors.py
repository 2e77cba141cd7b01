"""What the process does that has no file descriptor left; in a process of its own, whose limit is lowered."""

import resource
import subprocess
import sys

import pytest

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose

EXHAUSTED = """
import os, resource
from kproxy.linux import descriptors, host
from kproxy.linux.node_addresses import list_addresses
from kproxy.model.network import Family

def attempt(name, body):
    try:
        body()
    except host.HostError as error:
        print(name, error)

def attempts():
    attempt("command", lambda: host.run_tool(("true",)))
    attempt("lines", lambda: list(host.run_lines(("true",))))
    attempt("netlink", lambda: list_addresses(Family.IPV4, "kube-ipvs0"))
    attempt("file", lambda: host.read_file("/proc/self/stat"))

attempts()
print("exhausted")
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
attempts()
print({purpose.value: number for purpose, number in descriptors.shortages.items()})
descriptors.raise_limit()
assert descriptors.descriptor_limit() == min(hard, descriptors.MAX_DESCRIPTORS)
print("raised")
attempts()
"""

LOW = """
import resource
from contextlib import suppress
from kproxy.linux import descriptors

def limited(soft, hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

limited(50, 100)
descriptors.raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
limited(50, 100)
descriptors.raise_limit(at_least=200)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
with suppress(ValueError, OSError):
    limited(200, 200)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_hard_limit_that_is_too_low_is_raised_where_the_process_may() -> None:
    """The guest of ipvs mode's cases has 4096, which were too few for the whole catalogue."""
    done = subprocess.run([sys.executable, "-c", LOW], capture_output=True, text=True, check=True)
    plain, raised, possible = done.stdout.splitlines()
    assert plain == "100 100"
    assert raised == possible


def test_a_process_without_descriptors_reports_and_counts_it_and_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, _, rest = done.stdout.partition("exhausted\n")
    short, _, after = rest.partition("raised\n")
    assert (before, after) == ("", ""), "positive control: nothing fails while there are descriptors"
    for name in ("command", "lines", "netlink", "file"):
        assert any(
            line.startswith(f"{name} ") and "Too many open files" in line and "LimitNOFILE" in line
            for line in short.splitlines()
        ), short
    assert "{'command': 2, 'netlink': 1, 'file': 1}" in short


def test_what_a_cluster_can_demand_without_end_leaves_the_last_descriptors_to_the_rest() -> None:
    most = descriptors.descriptor_limit()
    assert not descriptors.is_reserved(0, Purpose.LISTENER)
    assert descriptors.is_reserved(most - 1, Purpose.LISTENER)
    assert descriptors.is_reserved(most - 1, Purpose.CONNECTION)
    assert not descriptors.is_reserved(most - 1, Purpose.NETLINK)


def test_half_of_few_descriptors_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert not descriptors.is_reserved(49, Purpose.LISTENER)
    assert descriptors.is_reserved(50, Purpose.LISTENER)
