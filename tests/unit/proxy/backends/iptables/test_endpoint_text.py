"""What is filled into patterns is, letter for letter, what the typed rules are written as."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.iptables.compile import Context
from kproxy.proxy.backends.iptables.desired_state import ServiceRules
from kproxy.proxy.backends.iptables.rules import render
from kproxy.proxy.plan import Exposure, NodePorts, PoolScope
from tests.support.plans import PODS, frontend, pool, service

ADDRESSES = {
    Family.IPV4: ("10.0.0.1#80", "10.0.0.1#81", "0.0.0.0#1", "255.255.255.255#65535"),
    Family.IPV6: ("fd00::1#80", "fd00::1#81", "::#1", "ff00::ffff#65535"),
}
"""Those that stand for nobody's in the patterns among them."""

NAMES = ("ns/svc:http", "ns/svc:", f"{'n' * 63}/{'s' * 63}:{'p' * 63}", f"{'n' * 253}/{'s' * 253}:")
"""With a comment that fits, and with one that is cut before and in the middle of the endpoint."""


@st.composite
def fragments(draw: st.DrawFn) -> ServiceRules:
    family = draw(st.sampled_from(Family))
    everywhere = draw(st.lists(st.sampled_from(ADDRESSES[family]), unique=True, min_size=1))
    here = draw(st.lists(st.sampled_from(everywhere), unique=True))
    address = "10.96.0.1" if family is Family.IPV4 else "fd00:96::1"
    planned = service(
        frontend(Exposure.CLUSTER_IP, address, 80, pool(*everywhere)),
        frontend(
            Exposure.NODE_PORT, None, 30080, pool(*here, scope=PoolScope.LOCAL), shortcut=pool(*everywhere)
        ),
        name=draw(st.sampled_from(NAMES)),
        protocol=draw(st.sampled_from(Protocol)),
        affinity=draw(st.sampled_from((None, 1, 10800))),
    )
    context = Context(family, PODS, NodePorts(None, localhost=False), endpoint_comments=draw(st.booleans()))
    return ServiceRules(planned, context)


@given(fragments())
@settings(deadline=None)
def test_a_services_chains_as_text_are_its_rules(fragment: ServiceRules) -> None:
    assert fragment.own_lines() == {chain.name: tuple(render(chain)) for chain in fragment.chains()}
