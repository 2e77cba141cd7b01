"""The bench's cluster is as described: all of it reaches the plan, and no two Services share an address."""

from itertools import islice

import msgspec
import pytest

from kproxy.lab.topology import LAB, NODES
from kproxy.model import api
from kproxy.model.network import Family
from tests.bench import world
from tests.bench.world import LIVE_ENDPOINTS, Size

SIZE = Size(30, 4)


def parsed(size: Size) -> api.Cluster:
    return api.parse_cluster(msgspec.json.encode({"kind": "List", "items": list(world.documents(size))}))


def test_every_object_is_accepted() -> None:
    cluster = parsed(SIZE)
    assert cluster.rejected == ()
    assert len(cluster.services) == len(cluster.slices) == SIZE.services + len(world.standing(SIZE))


def test_the_plan_serves_every_service_and_endpoint() -> None:
    plan = world.planned(world.documents(SIZE), "iptables")
    counts = sorted(len(service.frontends[0].pool.endpoints) for service in plan.services)
    assert counts == [1] * len(world.standing(SIZE)) + [SIZE.endpoints] * SIZE.services
    assert plan.notes == ()


def test_no_cluster_ip_is_given_twice_and_live_ones_stay_free() -> None:
    given = [service.spec.cluster_ip for service in parsed(SIZE).services.values()]
    later = [str(world.added(number).cluster_ip) for number in range(20)]
    assert len(set(given + later)) == len(given) + len(later)


def test_made_up_pods_are_on_no_node() -> None:
    real = {str(network) for node in NODES for network in LAB.pod_cidrs[node].values()}
    assert real
    for node in NODES:
        network = LAB.pod_cidrs[node][Family.IPV4]
        assert all(world._pod(number) not in network for number in (0, 1, world._PODS - 1))
        assert LAB.pod_address[LAB.pods[node][0]][Family.IPV4] in network


def test_endpoints_stay_different_when_the_pods_come_round_again() -> None:
    size = Size(world._PODS // 50 + 2, 50)
    seen: set[tuple[str, int]] = set()
    for item in list(world.filler(size))[1::2]:
        port = item["ports"][0]["port"]
        seen.update((endpoint["addresses"][0], port) for endpoint in item["endpoints"])
    assert len(seen) == size.services * size.endpoints


def test_live_services_stand_before_amid_and_after_the_others() -> None:
    names = sorted(service.metadata.name for service in parsed(SIZE).services.values())
    positions = sorted(names.index(live.name) for live in world.standing(SIZE))
    assert positions[0] == 0
    assert positions[-1] == len(names) - 1
    assert 10 < positions[1] < len(names) - 10


def test_a_change_moves_a_service_to_another_real_server() -> None:
    live = world.standing(SIZE)[0]
    slices = [live.slice(endpoint) for endpoint in LIVE_ENDPOINTS]
    places = {(s["endpoints"][0]["addresses"][0], s["ports"][0]["port"]) for s in slices}
    assert len(places) == len(LIVE_ENDPOINTS)
    assert len({s["metadata"]["name"] for s in slices}) == 1


@pytest.mark.parametrize("text", ["", "5", "0x5", "5x0", "ax5", "70000x1"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Size.parse(text)


def test_a_size_reads_as_it_is_written() -> None:
    assert Size.parse("5000x5") == Size(5000, 5)
    assert str(Size(5000, 5)) == "5000x5"


def test_unrelated_slices_change_no_rule() -> None:
    whole = list(world.documents(SIZE))
    plan = world.planned(whole, "iptables")
    later = world.planned((*whole, *islice(world.unrelated(), 300)), "iptables")
    assert later.services == plan.services
    moved = world.planned((*whole, world.standing(SIZE)[0].slice(LIVE_ENDPOINTS[1])), "iptables")
    assert moved.services != plan.services
