"""A daemon flooded with hostile objects, while a good Service is queried."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator

import pytest

from kproxy.conformance.binding.lab_objects import node_documents
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.topology import LAB
from kproxy.model.api import MAX_NAME_LENGTH
from kproxy.model.network import Family, Protocol
from tests.support.daemon_stage import Stage, balanced, endpoints, stage
from tests.support.hostile_objects import NO_ADDRESSES, ODDITIES, ORDERS, Document

SPELLS = (*ORDERS, *(text for text in ODDITIES if text.isprintable() or text.isascii()))


def hostile_documents() -> Iterator[Document]:
    """Each spell in every place of objects that are good otherwise; each is to be refused, in part at least."""
    numbers = itertools.count(1)
    for spell in SPELLS:
        for place in ("name", "namespace", "port", "address", "range", "policy"):
            yield hostile_service(spell, place, next(numbers))
        for place in ("name", "address", "number"):
            yield hostile_slice(spell, place, next(numbers))
        yield {
            "kind": "ServiceCIDR",
            "metadata": {"name": f"evil-{next(numbers)}"},
            "spec": {"cidrs": [spell]},
        }
    yield hostile_node()


def hostile_service(spell: str, place: str, number: int) -> Document:
    document = balanced(port=0, name=f"evil-{number}", policy="Cluster", number=number % 250)
    address = f"10.97.{number // 250}.{number % 250}"
    document["spec"] |= {
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
    }
    match place:
        case "name" | "namespace":
            document["metadata"][place] = spell
        case "port":
            document["spec"]["ports"][0]["name"] = spell
        case "address":
            document["spec"]["externalIPs"] = [NO_ADDRESSES[number % len(NO_ADDRESSES)], spell]
        case "range":
            document["spec"]["loadBalancerSourceRanges"] = [spell]
        case "policy":
            document["spec"]["internalTrafficPolicy"] = spell
        case _:
            pytest.fail(place)
    return document


def hostile_slice(spell: str, place: str, number: int) -> Document:
    """Of the good Service."""
    document = endpoints("a2")
    document["metadata"]["name"] = f"evil-{number}"
    match place:
        case "name":
            document["metadata"]["name"] = spell
        case "address":
            document["endpoints"][0]["addresses"] = [spell]
        case "number":
            document["ports"][0]["port"] = 65536 + number
        case _:
            pytest.fail(place)
    return document


def hostile_node() -> Document:
    """The daemon's own, with every spell for an address, and for networks of pods."""
    name = LAB.hostnames["a"]
    (document,) = (each for each in node_documents() if each["metadata"]["name"] == name)
    document["status"]["addresses"] += [{"type": "InternalIP", "address": spell} for spell in SPELLS]
    document["spec"]["podCIDRs"] += SPELLS
    return document


def named(document: Document) -> tuple[str, str]:
    """What names it in the metric: kind, and so much of its name that it is nobody else's."""
    return document["kind"], document["metadata"]["name"][: MAX_NAME_LENGTH + 1]


def is_read(document: Document, mode: str) -> bool:
    """Networks of Services are known to rules of nftables mode alone."""
    return document["kind"] != "ServiceCIDR" or mode == "nftables"


async def flood(mode: str) -> None:
    """The body of the test of this name; in ipvs mode a guest runs it."""
    async with stage(mode) as on:
        on.lab.servers.serve(on.lab.network["a1"], 8080, Protocol.TCP, "a1")
        on.put(balanced(), endpoints("a1"))
        await on.answers(200)
        requested = ProbeRequest(
            sender="client", destination=LAB.node_address["a"][Family.IPV4], port=30001, patience=3.0
        )
        documents = list(hostile_documents())
        sending = asyncio.create_task(post(on, documents))
        answers = []
        while not sending.done():
            answers.append(await on.lab.probe(requested))
        await sending
        wanted = {named(document) for document in documents if is_read(document, mode)}
        await on.becomes(lambda: all_named(on, wanted))
        answers += [await on.lab.probe(requested) for _ in range(5)]
        assert [answer for answer in answers if not isinstance(answer, Answered)] == []
        log = on.daemon.log.read_text()
        for _, name in wanted:
            assert shown(name) in log
        assert not [line for line in log.splitlines() if line[:1] not in "IWE" or "] " not in line]


async def post(on: Stage, documents: list[Document]) -> None:
    for document in documents:
        on.put(document)
        await asyncio.sleep(0.005)


async def all_named(on: Stage, wanted: Collection[tuple[str, str]]) -> bool:
    samples = [dict(labels) for sample, labels in await on.metrics() if sample == "kproxy_refused_object"]
    return set(wanted) <= {(labels["kind"], labels["name"]) for labels in samples}


def shown(name: str) -> str:
    """As a log line has it: nothing in it ends the line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
