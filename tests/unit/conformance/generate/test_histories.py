"""Any history of objects, good and bad: at every point of it the kernel holds what a fresh start would write.

Through plan, program and transaction, each from the one before.  The kernels are the models of each backend's own
tests, which refuse what a kernel refuses.  What a fresh start writes is lawful: see `test_worlds`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.model.api import Cluster
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import desired_state as iptables
from kproxy.proxy.backends.iptables.diff import diff as iptables_diff
from kproxy.proxy.backends.iptables.dispatch_tree import Shape
from kproxy.proxy.backends.ipvs.desired_state import DesiredState as IpvsProgram
from kproxy.proxy.backends.ipvs.desired_state import delta
from kproxy.proxy.backends.ipvs.diff import KernelState, full_delta, transaction
from kproxy.proxy.backends.nftables import desired_state as nftables
from kproxy.proxy.backends.nftables.diff import Leftovers
from kproxy.proxy.backends.nftables.diff import diff as nftables_diff
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS
from kproxy.proxy.plan import Plan, PlanSettings, make_plan
from kproxy.proxy.snapshot import Snapshot, normalise
from tests.support import iptables_model as iptables_models
from tests.support import ipvs_model as ipvs_models
from tests.support import nftables_model as nftables_models
from tests.support.nftables_table import SimulatedTable
from tests.support.strategies import NODES, ZONES, histories

families = st.sampled_from(Family)
HISTORIES = settings(max_examples=60, derandomize=True)


def plans(history: list[Cluster], family: Family) -> Iterator[tuple[Plan, Plan]]:
    """Of each point: the plan made from the one before, and the one of a fresh start."""
    here = PlanSettings(family=family, node=NODES[0], zone=ZONES[0], detector=None)
    snapshot: Snapshot | None = None
    made: Plan | None = None
    for cluster in history:
        snapshot = normalise(cluster, family, snapshot)
        made = make_plan(snapshot, here, made)
        yield made, make_plan(normalise(cluster, family), here)


@pytest.mark.parametrize("shape", iptables_models.SHAPES)
@given(history=histories(), family=families)
@HISTORIES
def test_iptables_are_as_after_a_fresh_start(shape: Shape, history: list[Cluster], family: Family) -> None:
    (first, _), *changes = plans(history, family)
    believed = iptables.desired_state(first, iptables_models.OPTIONS, shape=shape)
    tables = iptables_models.rewritten(believed)
    for after, fresh in changes:
        desired = iptables.desired_state(after, iptables_models.OPTIONS, believed, shape)
        tables.apply(str(iptables_diff(believed, desired, LEGACY_BLOCK_CHAINS)))
        believed = desired
        anew = iptables_models.rewritten(iptables.desired_state(fresh, iptables_models.OPTIONS, shape=shape))
        assert iptables_models.held(tables) == iptables_models.held(anew)


@given(histories(), families)
@HISTORIES
def test_nftables_are_as_after_a_fresh_start(history: list[Cluster], family: Family) -> None:
    table, believed = SimulatedTable(family), None
    leftovers: Leftovers = {}
    for after, fresh in plans(history, family):
        desired = nftables.desired_state(after, nftables_models.OPTIONS, believed)
        changes = nftables_diff(believed, desired, leftovers)
        table.apply(changes)
        believed, leftovers = desired, changes.leftovers
        assert nftables_models.contents(table, leftovers) == nftables_models.contents(
            nftables_models.fresh(fresh)
        )


@given(histories(), families)
@HISTORIES
def test_ipvs_is_as_after_a_fresh_start(history: list[Cluster], family: Family) -> None:
    (first, _), *changes = plans(history, family)
    picture = KernelState()
    believed: IpvsProgram = ipvs_models.programmed(first)
    ipvs_models.execute(picture, transaction(picture, full_delta(picture, believed), family))
    for after, fresh in changes:
        desired = ipvs_models.programmed(after, believed)
        ipvs_models.execute(picture, transaction(picture, delta(believed, desired), family))
        believed = desired
        assert ipvs_models.agrees(picture, believed)
        assert set(believed.service_rules) == set(ipvs_models.programmed(fresh).service_rules)
