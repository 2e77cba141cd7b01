"""Trees lead every destination to its rules and others soon away, and are the same whatever way they came about."""

import re
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.linux.netfilter.rules import Rule
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.iptables.dispatch_tree import (
    IPV4_BITS,
    IPV6_BITS,
    NODE_PORT_BITS,
    SHAPE,
    Branch,
    Leaf,
    Node,
    Shape,
    Tree,
    TreeRule,
    chains_of,
    entries_of,
    key_space,
    tree_key,
)
from kproxy.proxy.backends.xtables.rules import Destination, specification
from tests.support.iptables_model import NARROW, Chains, rules_met_in

ROOT = "KUBE-SERVICES"
LONGEST_NAME = 28
"""Of a chain: XT_EXTENSION_MAXNAMELEN of linux/netfilter/x_tables.h, less the final zero."""

SMALL = Shape(flat=4, leaf=2, bits=2, depth=6)
SHALLOW = Shape(flat=0, leaf=1, bits=1, depth=2)
SHAPES = [SHAPE, SMALL, NARROW, SHALLOW]
NUMBERS = st.integers(0, 300) | st.integers(0, 0xFFFF) | st.sampled_from([0, 1 << 31, (1 << 32) - 1])
PORTS = st.sampled_from([80, 443, 0, 65535]) | st.integers(0, 65535)
BASES = {
    IPV4_BITS: st.sampled_from([ip_address("10.96.0.0"), ip_address("0.0.0.0")]),
    IPV6_BITS: st.sampled_from([ip_address("fd00:10:96::"), ip_address("::")]),
    NODE_PORT_BITS: st.just(None),
}


@st.composite
def destinations(draw: st.DrawFn, bits: int) -> Destination:
    """Addresses close to each other and far apart, and several ports of one."""
    base, number = draw(BASES[bits]), draw(NUMBERS)
    address = None if base is None else type(base)((int(base) + number) % (1 << bits))
    return Destination(address, draw(st.sampled_from(Protocol)), draw(PORTS))


SETS = {bits: st.sets(destinations(bits), max_size=60) for bits in BASES}


def entry(destination: Destination) -> TreeRule[str]:
    where = f"-d {destination.address} " if destination.address is not None else ""
    protocol = destination.protocol.value.lower()
    rule = f"{where}-p {protocol} -m {protocol} --dport {destination.port} -j KUBE-SVC-X"
    return TreeRule(tree_key(destination), str(destination), 0, rule)


def tree(bits: int, shape: Shape, found: set[Destination]) -> Tree[str]:
    empty: Tree[str] = Tree(key_space(bits, shape.bits), shape)
    return empty.edited((), map(entry, found))


def written(of: Tree[str]) -> Chains:
    rules, below = chains_of(of, "KUBE-SVC-", specification)
    return {**below, ROOT: rules}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", BASES)
@given(data=st.data())
def test_every_destination_finds_its_rule_and_no_other(bits: int, shape: Shape, data: st.DataObject) -> None:
    found = data.draw(SETS[bits])
    chains = written(tree(bits, shape, found))
    for one in found:
        assert rules_met_in(chains, ROOT, one)[0] == [entry(one).item]
    other = data.draw(destinations(bits))
    assert bool(rules_met_in(chains, ROOT, other)[0]) == (other in found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", BASES)
@given(data=st.data())
def test_a_tree_does_not_depend_on_how_it_came_about(bits: int, shape: Shape, data: st.DataObject) -> None:
    before, after = data.draw(SETS[bits]), data.draw(SETS[bits])
    old = tree(bits, shape, before)
    written(old)  # what it remembers for the next must be right there
    kept = {one for one in before if data.draw(st.booleans())}
    wanted = kept | after
    changed = old.edited(map(entry, before - kept), map(entry, after))
    assert written(changed) == written(tree(bits, shape, wanted))
    assert list(entries_of(changed.root)) == sorted(map(entry, wanted))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", BASES)
@given(data=st.data())
def test_chains_are_short_and_have_names_that_the_kernel_takes(
    bits: int, shape: Shape, data: st.DataObject
) -> None:
    of = tree(bits, shape, data.draw(SETS[bits]))
    chains = written(of)
    assert all(len(name) <= LONGEST_NAME for name in chains)
    assert all(re.fullmatch(r"KUBE-SVC-[a-z]*/?[\w./-]+", name) for name in chains if name != ROOT)
    targets = [line.split()[-1] for lines in chains.values() for line in lines if "/" in line.split()[-1]]
    assert sorted(targets) == sorted(chains.keys() - {ROOT})
    if of.root and height(of.root) <= shape.depth:
        widest = max(1 << shape.bits, len(Protocol), shape.leaf)
        assert all(len(lines) <= widest for name, lines in chains.items() if name != ROOT)


def height(node: Node[str]) -> int:
    return 0 if isinstance(node, Leaf) else 1 + max(map(height, node.children))


def test_ten_thousand_services_are_a_few_dozen_rules_deep() -> None:
    base = int(ip_address("10.96.0.0"))
    found = [
        Destination(ip_address(base + number * 40_503 % (1 << 20)), Protocol.TCP, 80)
        for number in range(10_000)
    ]
    chains = written(tree(IPV4_BITS, SHAPE, set(found)))
    compared = [rules_met_in(chains, ROOT, one)[1] for one in found]
    assert max(compared) <= 48
    outside = Destination(ip_address("10.244.1.5"), Protocol.TCP, 80)
    assert rules_met_in(chains, ROOT, outside)[1] <= 1 << SHAPE.bits
    assert max(len(lines) for lines in chains.values()) <= 8


def test_a_rule_that_comes_or_goes_rewrites_one_leaf() -> None:
    base = int(ip_address("10.96.0.0"))
    found = {Destination(ip_address(base + number), Protocol.TCP, 80) for number in range(0, 8192, 2)}
    old = tree(IPV4_BITS, SHAPE, found)
    new = old.edited((), [entry(Destination(ip_address(base + 4097), Protocol.TCP, 80))])
    before, after = written(old), written(new)
    assert [name for name in after if after[name] != before.get(name)] == ["KUBE-SVC-10.96.16.0/29"]


def test_what_does_not_change_is_shared() -> None:
    found = {
        Destination(ip_address(f"10.{n}.0.{k}"), Protocol.TCP, 80) for n in range(96, 104) for k in range(20)
    }
    old = tree(IPV4_BITS, SHAPE, found)
    new = old.edited((), [entry(Destination(ip_address("10.96.0.99"), Protocol.TCP, 80))])
    assert isinstance(old.root, Branch)
    assert isinstance(new.root, Branch)
    same = [a is b for a, b in zip(old.root.children, new.root.children, strict=True)]
    assert same.count(False) == 1


def test_a_name_identifies_its_group() -> None:
    addresses = key_space(IPV4_BITS, 3)
    key = tree_key(Destination(ip_address("10.96.0.10"), Protocol.UDP, 53))
    assert addresses.name(key, addresses.boundaries.index(14)) == "10.96.0.0/14"
    ports = key_space(NODE_PORT_BITS, 3)
    key = tree_key(Destination(None, Protocol.TCP, 30080))
    assert ports.name(key, ports.boundaries.index(6)) == "tcp/28672-32767"
    matches = ports.matches(key, ports.boundaries.index(6), 0)
    assert specification(Rule(matches)) == "-p tcp -m tcp --dport 28672:32767"


@pytest.mark.parametrize("family", Family)
def test_an_address_with_many_ports_is_kept_from_its_neighbours(family: Family) -> None:
    """A group of ports below a chain of several addresses must match its address, or it would swallow theirs."""
    bits = IPV4_BITS if family is Family.IPV4 else IPV6_BITS
    network = ip_network("10.96.0.0/28" if family is Family.IPV4 else "fd00::/124")
    found = {Destination(network[0], Protocol.TCP, port) for port in range(80, 120)}
    neighbour = Destination(network[1], Protocol.TCP, 80)
    far = {
        Destination(type(network[0])(int(network[0]) ^ 1 << bits - 1), Protocol.TCP, port)
        for port in (80, 81)
    }
    chains = written(tree(bits, Shape(flat=0, leaf=1, bits=3, depth=6), found | far | {neighbour}))
    assert rules_met_in(chains, ROOT, neighbour)[0] == [entry(neighbour).item]
