"""Hostile objects as a daemon reads them, and its plans for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kproxy.model import api
from kproxy.model.api import Cluster
from kproxy.model.network import Family
from kproxy.proxy.daemon.cluster.store import ClusterStore, Kind
from kproxy.proxy.daemon.cluster.watch_decoder import WatchDecoder, WatchedChange
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.plan_settings import plan_settings
from kproxy.proxy.daemon.sync.change_times import TriggerTimes
from kproxy.proxy.plan import Plan, make_plan
from kproxy.proxy.snapshot import normalise
from tests.support.hostile_objects import (
    NODE,
    Document,
    documents,
    encoded,
    good_service,
)

KINDS: dict[str, Kind] = {
    "Service": api.Service,
    "EndpointSlice": api.EndpointSlice,
    "Node": api.Node,
    "ServiceCIDR": api.ServiceCIDR,
}


WORLDS = st.lists(documents(), max_size=4)


def read(kind: str, raw: bytes) -> Any:  # noqa: ANN401 - an object or a reason
    """One object as it comes by a watch."""
    line = b'{"type":"ADDED","object":' + raw + b"}"
    (event,) = WatchDecoder(KINDS[kind]).decode_events(line)
    assert isinstance(event, WatchedChange)
    return event.change


def world(hostile: list[Document]) -> Cluster:
    """State of a daemon that has received these objects, and the good Service."""
    store = ClusterStore(lambda: 0.0)
    for family in Family:
        store.subscribe(TriggerTimes(family))
    for document in (*hostile, *good_service()):
        kind = document["kind"]
        store.apply(KINDS[kind], [read(kind, encoded(document))])
    return store.cluster()


def planned(cluster: Cluster, family: Family, mode: str = "iptables", detect: str = "NodeCIDR") -> Plan:
    made = plan_settings(
        Configuration(mode=mode, detect_local_mode=detect, node_port_addresses=("0.0.0.0/0", "::/0")),
        family,
        NODE,
        cluster.node(NODE),
        (),
        tuple(cluster.service_cidrs.values()),
    )
    return make_plan(normalise(cluster, family), made)
