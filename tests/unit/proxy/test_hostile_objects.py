"""Hostile objects through the whole pure pipe: read as from an API server, planned, and written for all three kernels.

No rule is injected, no other Service is disturbed, and every object of which something was refused is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.model import api
from kproxy.model.api import Cluster, Rejected
from kproxy.model.network import Family, parse_address, parse_network
from kproxy.proxy.backends.iptables import desired_state as iptables
from kproxy.proxy.backends.iptables.diff import Rewrite
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.ipvs import compile as ipvs_compile
from kproxy.proxy.backends.ipvs import desired_state as ipvs
from kproxy.proxy.backends.ipvs import diff as ipvs_diff
from kproxy.proxy.backends.ipvs import static_rules as ipvs_chains
from kproxy.proxy.backends.ipvs.rules import rule_text
from kproxy.proxy.backends.nftables import desired_state as nftables
from kproxy.proxy.backends.nftables import diff as nftables_diff
from kproxy.proxy.backends.nftables import static_rules as nftables_base
from kproxy.proxy.backends.nftables.commands import format_command
from kproxy.proxy.backends.nftables.render import Renderer
from kproxy.proxy.backends.xtables.rules import PacketCounter
from kproxy.proxy.daemon.cluster.store import ClusterStore, Removed
from kproxy.proxy.daemon.cluster.watch_decoder import WatchDecoder, WatchedChange
from kproxy.proxy.plan import Plan
from kproxy.proxy.snapshot import normalise
from tests.support.hostile_objects import (
    NODE,
    Document,
    encoded,
    good_service,
    nodes,
    service_cidrs,
    services,
)
from tests.support.hostile_worlds import KINDS, WORLDS, planned, read, world

UNHURRIED = settings(suppress_health_check=list(HealthCheck))


GOOD = world([])


def iptables_lines(desired: Plan) -> list[str]:
    options = Options(counters=frozenset(PacketCounter))
    return str(Rewrite({}, iptables.desired_state(desired, options), 1 << 30)).splitlines()


def nftables_lines(desired: Plan) -> list[str]:
    made = nftables.desired_state(desired, nftables_base.Options())
    renderer = Renderer(desired.family)
    return [line for command in nftables_diff.Rewrite(made) for line in format_command(command, renderer)]


def ipvs_lines(desired: Plan) -> list[str]:
    made = ipvs.desired_state(desired, ipvs_compile.Context(frozenset(), ()), ipvs_chains.Options())
    picture = ipvs_diff.KernelState()
    todo = str(ipvs_diff.transaction(picture, ipvs_diff.full_delta(picture, made), desired.family))
    tables = ipvs_chains.build_ruleset(made.chain_context).chains
    rules = [rule_text(rule) for chains in tables.values() for rules in chains.values() for rule in rules]
    return sorted(filter(None, todo.splitlines())) + rules


CHAIN = "KUBE-[A-Z0-9-]+"
QUOTED = r'-m comment --comment "[ !#%-\[\]-_a-~]*"'
WORD = r"(?:!|[A-Za-z0-9./:,+_\[\]-]+)"
TARGET = rf"-[gj] (?:{CHAIN}|ACCEPT|DROP|REJECT|RETURN|DNAT|MASQUERADE|MARK|SET)"
RULE = rf"(?:{QUOTED} )?(?:{WORD} )*{TARGET}(?: {WORD})*"
NAME = r"[A-Za-z0-9./_-]{1,240}"
IPTABLES = rf"\*(?:mangle|nat|filter)|COMMIT|:{CHAIN} - \[0:0\]|-A {CHAIN} {RULE}"
NFTABLES = (
    rf"(?:add|delete) table ip6? kube-proxy(?: \{{ comment \"[A-Za-z ]+\"; \}})?"
    rf"|add (?:set|map) ip6? kube-proxy {NAME} \{{[A-Za-z0-9 .:;,\"()_-]+\}}"
    rf"|add chain ip6? kube-proxy {NAME}(?: \{{[A-Za-z0-9 .:;,\"()_+-]+\}})?"
    rf"|add rule ip6? kube-proxy {NAME} (?:iifname != \"lo\" )?[A-Za-z0-9 .:,/@{{}}!=<&()*_\[\]-]+(?: comment \"[ !#-\[\]-~]*\")?"
    rf"|add element ip6? kube-proxy {NAME} \{{ [A-Za-z0-9 .:,/_\[\]-]+ \}}"
)
IPVS = rf"chains(?: of two modes)?|(?:add|edit|bind|delete) [A-Za-z0-9 .:,/\[\]>-]+|{RULE}"

RENDERED: dict[str, tuple[Callable[[Plan], list[str]], re.Pattern[str]]] = {
    "iptables": (iptables_lines, re.compile(IPTABLES)),
    "nftables": (nftables_lines, re.compile(NFTABLES)),
    "ipvs": (ipvs_lines, re.compile(IPVS)),
}
"""How each backend writes a plan, and all that a line of it may ever be."""


@pytest.mark.parametrize("mode", RENDERED)
def test_the_grammar_of_lines_notices_an_injection(mode: str) -> None:
    """Positive control: the same pipe without its guard, which is where names are read."""
    write, grammar = RENDERED[mode]
    evil = 'x" -j ACCEPT\n-A INPUT -j DROP'
    metadata = api.Metadata(namespace="good", name=evil)
    spec = api.ServiceSpec(
        cluster_ip="10.96.0.10",
        cluster_ips=["10.96.0.10"],
        ports=[api.ServicePort(port=80)],
        session_affinity="ClientIP",
    )
    endpoints = api.EndpointSlice(
        metadata=api.Metadata(namespace="good", name="x", labels={api.SERVICE_NAME_LABEL: evil}),
        endpoints=[api.Endpoint(addresses=["10.0.0.1"])],
        ports=[api.EndpointPort(name="", port=80)],
    )
    cluster = Cluster(
        services={("good", evil): api.Service(metadata, spec)}, slices={("good", "x"): endpoints}
    )
    text = "\n".join(write(planned(cluster, Family.IPV4, mode)))
    injected = any(not grammar.fullmatch(line) for line in text.splitlines())
    assert injected is (mode != "ipvs")  # nothing of ipvs mode has a Service's name in it


def by_place(lines: list[str]) -> dict[str, list[str]]:
    """Lines by where they take effect, single elements for each of a list of them."""
    found: dict[str, list[str]] = {}
    table = ""
    for line in lines:
        table = line if line.startswith("*") else table
        place = table + " ".join(line.split()[:2])
        if " element " in line:
            head, _, elements = line.partition(" { ")
            found.setdefault(head, []).extend(elements.removesuffix(" }").split(", "))
        elif line.startswith("add rule "):
            found.setdefault(" ".join(line.split()[:5]), []).append(line)
        else:
            found.setdefault(place, []).append(line)
    return found


def is_within(few: list[str], many: list[str]) -> bool:
    """Whether all of the few are among the many, in their order."""
    rest = iter(many)
    return all(line in rest for line in few)


@pytest.mark.timeout(3600)
@given(hostile=WORLDS)
@UNHURRIED
def test_no_rule_is_injected_and_a_good_service_has_all_it_needs(hostile: list[Document]) -> None:
    """In the syntax of every backend, for both families."""
    mixed = world(hostile)
    for mode, (write, grammar) in RENDERED.items():
        for family in Family:
            found = write(planned(mixed, family, mode))
            assert not [line for line in found if not grammar.fullmatch(line)]
            among = planned(mixed, family, mode, "ClusterCIDR")
            alone = planned(GOOD, family, mode, "ClusterCIDR")
            assert [s for s in among.services if s.name.namespace == "good"] == list(alone.services)
            present, needed = by_place(write(among)), by_place(write(alone))
            assert not {place for place in needed if not is_within(needed[place], present.get(place, []))}


@given(hostile=WORLDS)
@UNHURRIED
def test_an_object_is_read_or_refused_by_name(hostile: list[Document]) -> None:
    for kind, of_kind in KINDS.items():
        given_of_kind = [document for document in hostile if document["kind"] == kind]
        raws = [encoded(document) for document in given_of_kind]
        body = b'{"metadata":{"resourceVersion":"7"},"items":[' + b",".join(raws) + b"]}"
        listed = WatchDecoder(of_kind).decode_list(body)
        assert len(listed.objects) + len(listed.rejected) == len(raws)
        assert listed.version == "7"
        assert {bad.kind for bad in listed.rejected} <= {kind}
        one_by_one = [read(kind, raw) for raw in raws]
        assert [item for item in one_by_one if not isinstance(item, Rejected)] == list(listed.objects)
        assert [item for item in one_by_one if isinstance(item, Rejected)] == list(listed.rejected)
        for document, item in zip(given_of_kind, one_by_one, strict=True):
            if isinstance(item, Rejected):
                assert_named(item, document)


def assert_named(refused: Rejected, document: Document) -> None:
    """What refused an object can be found by: as much of its name as is text."""
    assert refused.reason
    metadata = document["metadata"]
    if not isinstance(metadata, dict):
        return
    for reported, wanted in zip(
        refused.key, (metadata.get("namespace", ""), metadata.get("name", "")), strict=True
    ):
        if isinstance(wanted, str) and wanted.isascii():
            assert reported == wanted[:254]


def refused_parts(document: Document) -> Iterator[str]:
    """What of a Service's ports and addresses nobody can use, by the API's own rules."""
    spec = document["spec"]
    for port in spec["ports"]:
        if not 1 <= port["port"] <= 65535 or not 0 <= port["nodePort"] <= 65535:
            yield "port number"
        if port["protocol"] not in ("TCP", "UDP", "SCTP"):
            yield "protocol"
        if not re.fullmatch("([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?", port["name"] or ""):
            yield "port name"


@given(document=services())
@UNHURRIED
def test_a_service_of_which_a_part_is_refused_is_named(document: Document) -> None:
    item = read("Service", encoded(document))
    if isinstance(item, Rejected) or item.spec.type == "ExternalName" or item.spec.cluster_ip in ("", "None"):
        return
    cluster = world([document])
    for family in Family:
        desired = planned(cluster, family)
        if any(s.key == api.key_of(item) for s in normalise(cluster, family).services.values()):
            named = {(note.kind, note.key) for note in desired.notes if note.refused}
            assert not any(refused_parts(document)) or ("Service", api.key_of(item)) in named


@given(hostile=st.lists(st.one_of(nodes, service_cidrs), max_size=3))
@UNHURRIED
def test_a_node_or_network_of_which_a_part_is_refused_is_named(hostile: list[Document]) -> None:
    cluster = world(hostile)
    named = {(note.kind, note.key) for note in planned(cluster, Family.IPV4).notes}
    for key, each in cluster.service_cidrs.items():
        bad = [text for text in each.spec.cidrs or () if parse_network(text) is None]
        assert (("ServiceCIDR", key) in named) is bool(bad)
    node = cluster.node(NODE)
    if node is not None:
        texts = [
            item.address
            for item in node.status.addresses or ()
            if item.type in ("InternalIP", "ExternalIP") and parse_address(item.address) is None
        ]
        texts += [text for text in node.spec.pod_cidrs or () if parse_network(text) is None]
        assert not texts or ("Node", ("", NODE)) in named


def test_what_is_refused_would_be_let_through_were_it_well_named() -> None:
    """Positive control: the good Service itself, renamed."""
    (document, *_) = good_service()
    assert not isinstance(read("Service", encoded(document)), Rejected)
    for field in ("name", "namespace"):
        good = document["metadata"][field]
        for name in ("web\n", "we\nb", 'we"b', "Web", "x" * 254, "-web", "web-", None, 7):
            document["metadata"][field] = name
            assert isinstance(read("Service", encoded(document)), Rejected), name
        document["metadata"][field] = "x" * 253
        assert not isinstance(read("Service", encoded(document)), Rejected)
        document["metadata"][field] = good
    for nameless in ({"name": ""}, {}):
        document["metadata"] = {"namespace": "good", **nameless}
        assert isinstance(read("Service", encoded(document)), Rejected), nameless


@pytest.mark.parametrize(("name", "like"), [("null", None), ("7", 7), ("x" * 253, "x" * 254)])
def test_what_has_no_name_takes_the_place_of_no_other_whose_name_looks_like_it(
    name: str, like: object
) -> None:
    """Neither when it comes, nor in a list, nor when it goes."""
    (good, *_) = good_service()
    good["metadata"]["name"] = name
    bad = encoded({"kind": "Service", "metadata": {"namespace": good["metadata"]["namespace"], "name": like}})
    decoder, store = WatchDecoder(api.Service), ClusterStore(lambda: 0.0)
    listed = decoder.decode_list(b'{"metadata":{},"items":[' + encoded(good) + b"," + bad + b"]}")
    store.replace(api.Service, listed.objects, listed.rejected)
    assert len(listed.rejected) == 1
    for kind in (b"ADDED", b"DELETED"):
        (event,) = decoder.decode_events(b'{"type":"' + kind + b'","object":' + bad + b"}")
        assert isinstance(event, WatchedChange)
        store.apply(api.Service, [event.change])
    assert list(store.cluster().services) == [(good["metadata"]["namespace"], name)]


def test_an_object_that_was_refused_can_be_removed() -> None:
    raw = encoded({"kind": "Service", "metadata": {"namespace": "n", "name": 'a"b'}})
    (event,) = WatchDecoder(api.Service).decode_events(b'{"type":"DELETED","object":' + raw + b"}")
    assert isinstance(event, WatchedChange)
    assert event.change == Removed(("n", 'a"b'))
