"""The node's addresses follow what the kernel reports, and those of the service device are not among them.

Sources: ``np.addresses.reread``, ``hcnp.listen-addrs``, ``ipvs.dummy`` in the catalogue of behaviours.  Any kind of device will
do in the place of kube-ipvs0: it is known by its name.
"""

import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import pytest

from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.linux import node_addresses as module
from kproxy.linux.netlink_multicast import MulticastListener
from kproxy.linux.netlink_socket import Netlink
from kproxy.linux.node_addresses import AddressMonitor, LocalAddresses, list_addresses
from kproxy.model.network import Address, Family
from tests.support.waiting import eventually

DEVICE = "kube-ipvs0"
OWN = {Family.IPV4: ip_address("192.0.2.1"), Family.IPV6: ip_address("2001:db8::1")}
CAME = {Family.IPV4: ip_address("192.0.2.2"), Family.IPV6: ip_address("2001:db8::2")}
OF_SERVICES = {Family.IPV4: ip_address("10.96.0.1"), Family.IPV6: ip_address("fd00::1")}

Change = Callable[..., None]


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = namespaces.create_namespace("addresses")
    with made.entered():
        yield made
    made.close()


@pytest.fixture
def change(namespace: Namespace, family: Family) -> Change:
    """Adds or deletes an address of a device; there are an uplink and the device of services."""

    def do(verb: str, address: Address, device: str) -> None:
        more = ("nodad",) if address.version == 6 and verb == "add" else ()
        notified = MulticastListener(socket.NETLINK_ROUTE, module._GROUPS[family])
        namespace.run(("ip", "address", verb, f"{address}/{address.max_prefixlen}", "dev", device, *more))
        assert eventually(notified.receive), "the kernel reports one of IPv6 a little later"

    for name in ("uplink", DEVICE):
        namespace.run(("ip", "link", "add", name, "type", "bridge"))
    do("add", OWN[family], "uplink")
    do("add", OF_SERVICES[family], DEVICE)
    return do


@pytest.mark.usefixtures("change")
def test_those_of_the_service_device_are_distinguished(family: Family) -> None:
    assert list_addresses(family, DEVICE) == LocalAddresses((OWN[family],), frozenset({OF_SERVICES[family]}))
    assert AddressMonitor(family, DEVICE).on_device() == {OF_SERVICES[family]}
    assert AddressMonitor(family, "other0").on_device() == frozenset()
    assert AddressMonitor(family, DEVICE).current() == (OWN[family],)
    assert set(AddressMonitor(family, "other0").current()) == {OWN[family], OF_SERVICES[family]}


def test_what_comes_and_goes_is_followed(family: Family, change: Change) -> None:
    followed = AddressMonitor(family, DEVICE)
    assert followed.current() == (OWN[family],)
    change("add", CAME[family], "uplink")
    assert set(followed.current()) == {OWN[family], CAME[family]}
    change("del", OWN[family], "uplink")
    assert followed.current() == (CAME[family],)


def test_nothing_is_listed_again_while_no_address_of_the_node_changes(
    family: Family, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = AddressMonitor(family, DEVICE)
    before = followed.current()
    lists: list[Family] = []
    read = module._read

    def counted(netlink: Netlink, of: Family, device: int | None) -> LocalAddresses:
        lists.append(of)
        return read(netlink, of, device)

    monkeypatch.setattr(module, "_read", counted)
    change("del", OF_SERVICES[family], DEVICE)
    assert followed.current() is before
    assert lists == []
    change("add", CAME[family], "uplink")
    assert followed.current() is not before
    assert lists == [family], "positive control"


def test_the_service_devices_are_listed_again_when_one_of_them_changes_and_only_then(
    family: Family, change: Change, namespace: Namespace
) -> None:
    followed = AddressMonitor(family, DEVICE)
    before = followed.on_device()
    change("del", OWN[family], "uplink")
    assert followed.on_device() is before == {OF_SERVICES[family]}
    change("add", CAME[family], DEVICE)
    assert followed.on_device() == {OF_SERVICES[family], CAME[family]}
    change("del", OF_SERVICES[family], DEVICE)
    assert followed.on_device() == {CAME[family]}
    namespace.run(("ip", "link", "del", DEVICE))
    assert followed.on_device() == frozenset()
    namespace.run(("ip", "link", "add", DEVICE, "type", "bridge"))
    assert followed.on_device() == frozenset()
    change("add", OF_SERVICES[family], DEVICE)
    assert followed.on_device() == {OF_SERVICES[family]}
    assert followed.current() == ()


@pytest.mark.usefixtures("change")
def test_a_device_that_comes_goes_or_is_renamed_takes_its_addresses_along(
    family: Family, namespace: Namespace
) -> None:
    followed = AddressMonitor(family, DEVICE)
    assert followed.current() == (OWN[family],)
    namespace.run(("ip", "link", "set", DEVICE, "name", "other0"))
    assert set(followed.current()) == {OWN[family], OF_SERVICES[family]}
    namespace.run(("ip", "link", "del", "other0"))
    assert followed.current() == (OWN[family],)
    namespace.run(("ip", "link", "set", "uplink", "name", DEVICE))
    assert followed.current() == ()


def test_more_reports_than_the_socket_holds_are_a_reason_to_list_all_again(
    family: Family, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = AddressMonitor(family, DEVICE)
    followed.current()
    change("add", CAME[family], "uplink")
    receive = followed._listener.receive
    monkeypatch.setattr(followed._listener, "receive", lambda: (receive(), None)[1])
    assert set(followed.current()) == {OWN[family], CAME[family]}
