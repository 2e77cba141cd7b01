"""Four hundred generated worlds, in every mode: what compiled rules do is what the oracle allows.

Always the same worlds: others come by ``kproxy conformance fuzz --testbed simulator``, which reports its seed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from kproxy.conformance.case import DROPPED, REJECTED, Apply, Case, CaseService, Policy, Probe, Step, Type
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.generate.generate import generate_worlds
from kproxy.conformance.testbeds.simulator import BACKENDS
from kproxy.proxy.backends.iptables import compile as compiler
from kproxy.proxy.backends.iptables import desired_state
from tests.support.iptables_model import NARROW
from tests.support.simulated_worlds import findings

SEED, PART, PARTS = 2026, 100, 4


@cache
def part(number: int) -> tuple[Case, ...]:
    """So many of them."""
    return tuple(generate_worlds(SEED + number, PART))


def reported(mode: str, finding: Finding) -> str:
    _, seed, number = finding.instance.case.id.rsplit("-", 2)
    again = f"kproxy conformance fuzz --testbed simulator --mode {mode} --seed {seed} --world {number}"
    return f"{finding.what}: lawful {finding.lawful}, seen {finding.seen}; small: `{again}`"


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, PARTS))])
def test_what_rules_do_in_any_world_is_lawful(number: int) -> None:
    wrong = [(mode, finding) for mode in BACKENDS for finding in findings(part(number), mode)]
    assert not wrong, "\n".join(reported(*each) for each in wrong[:5])


def test_what_rules_do_is_lawful_with_the_smallest_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world's few Services would be one flat chain, its endpoints chosen in one step."""
    monkeypatch.setattr(desired_state, "SHAPE", NARROW)
    monkeypatch.setattr(compiler, "MAX_ENDPOINTS_PER_CHAIN", 1)
    wrong = findings(part(0), "iptables")
    assert not wrong, "\n".join(reported("iptables", each) for each in wrong[:5])


def test_worlds_have_much_to_probe() -> None:
    """Or their agreement would mean little."""
    requested = {clause for case in part(0) for clause in case.clauses}
    assert requested >= {
        "endpoints.none.rejected",
        "endpoints.terminating.used-when-none-ready",
        "external-policy.local.drop-without-local-endpoint",
        "internal-policy.local.same-node",
        "load-balancer.ip-mode-proxy.untouched",
        "load-balancer.without-node-port.served",
        "slices.merged",
        "source-ranges.outside-dropped",
        "topology.same-zone",
    }
    assert len(requested) > 70


def test_policy_local_is_tried_without_node_ports() -> None:
    """On load balancer IPs whose Service has none, and on external IPs alone."""
    local = [s for s in declared(part(0)) if s.external_policy is Policy.LOCAL]
    assert any(s.type is Type.LOAD_BALANCER and not s.ports[0].node_port for s in local)
    assert any(s.type is Type.CLUSTER_IP and s.external_ips for s in local)


def declared(cases: tuple[Case, ...]) -> list[CaseService]:
    return [s for case in cases for step in case.steps if isinstance(step, Apply) for s in step.services]


def test_the_same_seed_makes_the_same_worlds_and_another_others() -> None:
    assert tuple(generate_worlds(SEED, 5)) == part(0)[:5]
    assert tuple(generate_worlds(SEED + 1, 5)) != part(0)[:5]


@pytest.mark.parametrize("mode", BACKENDS)
def test_a_wrong_answer_would_be_found(mode: str) -> None:
    """The positive control: answers to the contrary are not observed."""
    turned = [replace(case, steps=tuple(map(opposite, case.steps))) for case in part(0)[:20]]
    assert len(findings(turned, mode)) > 20


def opposite(step: Step) -> Step:
    if not isinstance(step, Probe):
        return step
    return replace(step, expect=DROPPED if step.expect & REJECTED else REJECTED)
