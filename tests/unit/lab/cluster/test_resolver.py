"""Names of a cluster, as a DNS client of the standard library's socket would see them, without a cluster."""

import asyncio
import socket
import struct
from ipaddress import ip_address

import pytest

from kproxy.lab.cluster import resolver
from kproxy.lab.cluster.resolver import NameRecords, RecordType

PATHS: dict[str, resolver.Document] = {
    "/api/v1/namespaces/shop/services/web": {
        "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00:96::7"]}
    },
    "/api/v1/namespaces/shop/services/set": {"spec": {"clusterIP": "None"}},
    "/api/v1/namespaces/shop/services/far": {
        "spec": {"type": "ExternalName", "externalName": "example.org."}
    },
    "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dset": {
        "items": [
            {
                "endpoints": [
                    {"addresses": ["10.244.1.2"], "hostname": "set-0", "conditions": {"ready": True}},
                    {"addresses": ["10.244.1.3"], "hostname": "set-1", "conditions": {"ready": False}},
                ]
            }
        ]
    },
}


def lookup(path: str) -> resolver.Document | None:
    return PATHS.get(path)


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("web.shop.svc.cluster.local", ["10.96.0.7", "fd00:96::7"]),
        ("set.shop.svc.cluster.local", ["10.244.1.2"]),
        ("set-0.set.shop.svc.cluster.local", ["10.244.1.2"]),
    ],
)
def test_services_headless_ones_and_their_endpoints_have_addresses(name: str, addresses: list[str]) -> None:
    found = resolver.find_name(name.split("."), lookup)
    assert found == NameRecords(tuple(map(ip_address, addresses)))


@pytest.mark.parametrize(
    "name",
    [
        "other.shop.svc.cluster.local",
        "set-1.set.shop.svc.cluster.local",
        "web.shop.svc.cluster.local.shop.svc.cluster.local",
        "example.org",
        "shop.svc.cluster.local",
        "",
    ],
)
def test_other_names_do_not_exist(name: str) -> None:
    assert resolver.find_name(name.split("."), lookup) is None


def query(name: str, kind: int) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


async def reply_to(message: bytes) -> bytes:
    """The reply of a resolver on loopback."""
    server = resolver.ClusterResolver(lookup)
    bound = socket.socket(type=socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    bound.setblocking(False)
    await server.serve(bound)
    try:
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(bound.getsockname())
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, message)
            return await asyncio.wait_for(loop.sock_recv(client, 4096), 5)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("name", "kind", "code", "content"),
    [
        ("web.shop.svc.cluster.local", RecordType.A, 0, ip_address("10.96.0.7").packed),
        ("WEB.shop.svc.cluster.local", RecordType.AAAA, 0, ip_address("fd00:96::7").packed),
        ("far.shop.svc.cluster.local", RecordType.A, 0, b"\7example\3org\0"),
        ("none.shop.svc.cluster.local", RecordType.A, 3, None),
    ],
)
def test_a_question_is_answered_by_one_record(name: str, kind: int, code: int, content: bytes | None) -> None:
    message = asyncio.run(reply_to(query(name, kind)))
    identifier, flags, questions, answers, *_ = struct.unpack_from("!6H", message)
    assert (identifier, flags & 0xF, questions, answers) == (7, code, 1, 0 if content is None else 1)
    if content is not None:
        assert message.endswith(struct.pack("!H", len(content)) + content)


def test_a_name_without_an_address_of_that_family_exists() -> None:
    message = asyncio.run(reply_to(query("set.shop.svc.cluster.local", RecordType.AAAA)))
    _, flags, _, answers, *_ = struct.unpack_from("!6H", message)
    assert (flags & 0xF, answers) == (0, 0)


def test_a_type_that_is_not_served_has_no_records_but_a_name() -> None:
    message = asyncio.run(reply_to(query("web.shop.svc.cluster.local", 33)))
    _, flags, _, answers, *_ = struct.unpack_from("!6H", message)
    assert (flags & 0xF, answers) == (0, 0)


@pytest.mark.parametrize("message", [b"", b"\0" * 11, struct.pack("!6H", 1, 0x8000, 1, 0, 0, 0), b"\0" * 12])
def test_what_is_no_question_gets_no_answer(message: bytes) -> None:
    assert resolver.parse_question(message) is None


def test_more_addresses_than_fit_are_left_out() -> None:
    many = NameRecords(tuple(ip_address("10.0.0.0") + number for number in range(500)))
    question = resolver.parse_question(query("web.shop.svc.cluster.local", RecordType.A))
    assert question is not None
    message = resolver.reply(question, many)
    assert len(message) <= 1232
    assert struct.unpack_from("!6H", message)[3] > 50
