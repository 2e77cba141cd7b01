"""Rates and CPU times of full load, and which loads a node gets."""

import math
from dataclasses import replace
from ipaddress import ip_address

from rich.console import Console

from tests.bench.connects import Destination, Kind, Load
from tests.bench.datapath_results import FLOOR
from tests.bench.full_load import Loaded, show, targets

POD = Destination(ip_address("10.244.1.11"), 9100)
SERVICE = Destination(ip_address("10.96.4.1"), 80)


def loaded(kind: Kind, *turns: Load) -> Loaded:
    return Loaded("kproxy", "nftables nft", "3x1", kind, "direct", turns)


def test_the_middle_turn_counts() -> None:
    found = loaded(
        Kind.CONNECTIONS, Load(10, 0, 0.5, 1.0), Load(400, 0, 0.008, 2.0), Load(1000, 1, 0.015, 1.0)
    )
    assert (found.rate, found.cpu) == (200, 20)


def test_a_stream_is_counted_in_megabytes() -> None:
    found = loaded(Kind.STREAM, Load(3_000_000_000, 0, 0.6, 2.0))
    assert (found.rate, round(found.cpu)) == (1500, 200)


def test_where_nothing_was_done_there_is_no_time_of_a_unit() -> None:
    assert math.isnan(loaded(Kind.CONNECTIONS, Load(0, 3, 0.1, 1.0)).cpu)


def test_without_full_load_there_is_no_table() -> None:
    console = Console(record=True, width=200)
    show(console, [])
    assert console.export_text() == ""
    show(console, [replace(loaded(Kind.STREAM, Load(1, 0, 0.1, 1.0)), subject=FLOOR)])
    assert "MB/s" in console.export_text()


def test_a_node_without_services_gets_direct_loads_alone() -> None:
    assert [(one.kind, one.place) for one in targets({"direct": POD})] == [(kind, "direct") for kind in Kind]
    served = targets({"direct": POD, "last": SERVICE, "external IP": SERVICE})
    assert [(one.kind.value, one.place) for one in served] == [
        ("connect", "direct"),
        ("connect", "last"),
        ("connect", "external IP"),
        ("stream", "direct"),
        ("stream", "Service"),
        ("datagrams", "direct"),
        ("datagrams", "Service"),
    ]
    assert len({one.to for one in served if one.place == "Service"}) == 2
