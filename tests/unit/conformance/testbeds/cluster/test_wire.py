"""Messages between harness and agents come back as they were sent, and what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.conformance.testbeds.cluster import messages, wire
from kproxy.lab.probes import echo, http
from kproxy.lab.probes import observation as lab
from kproxy.model.network import Family, Protocol

ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))
PORTS = st.integers(0, 65535)
SOCKETS = st.builds(lab.Socket, ADDRESSES, PORTS)
TEXTS = st.text(max_size=8)
EVIDENCE = st.builds(
    lab.Evidence,
    st.lists(
        st.builds(lab.Sighting, TEXTS, TEXTS, st.sampled_from(lab.Direction), SOCKETS, SOCKETS), max_size=2
    ).map(tuple),
    st.lists(st.builds(lab.Reception, TEXTS, SOCKETS, SOCKETS), max_size=2).map(tuple),
    PORTS,
)
SILENT = st.builds(lab.Silent, connected=st.booleans(), stopped_at_sender=st.booleans(), evidence=EVIDENCE)
OBSERVATIONS = st.one_of(
    st.builds(lab.Answered, who=TEXTS, at=SOCKETS, peer=SOCKETS, own=SOCKETS),
    st.builds(lab.Refused, st.builds(lab.Icmp, st.sampled_from(Family), PORTS, PORTS), ADDRESSES, SOCKETS),
    st.builds(lab.Reset, connected=st.booleans()),
    SILENT,
    st.builds(lab.NetworkError, PORTS),
    st.builds(lab.Garbled, TEXTS),
    st.builds(lab.Unsupported, TEXTS),
)
REQUESTS = st.builds(
    lab.ProbeRequest,
    sender=TEXTS,
    destination=ADDRESSES,
    port=PORTS,
    protocol=st.sampled_from(Protocol),
    source=st.none() | ADDRESSES,
    patience=st.floats(0, 10),
)
LISTENERS = st.builds(
    messages.Listener, PORTS, st.sampled_from(Protocol), TEXTS, st.lists(ADDRESSES, max_size=2).map(tuple)
)
MESSAGES = st.one_of(
    st.builds(messages.Serve, st.lists(LISTENERS, max_size=2).map(tuple)),
    st.builds(messages.SendProbes, REQUESTS, PORTS, PORTS),
    st.builds(messages.OpenFlow, REQUESTS, TEXTS),
    st.builds(
        messages.ProbesSent,
        st.lists(st.builds(messages.Seen, PORTS, OBSERVATIONS, EVIDENCE, st.booleans()), max_size=2).map(
            tuple
        ),
    ),
    st.builds(messages.Pinged, PORTS, OBSERVATIONS | st.just(echo.EchoReply())),
    st.builds(
        messages.Got,
        st.builds(http.Response, PORTS, st.binary(max_size=9), st.dictionaries(TEXTS, TEXTS, max_size=2))
        | SILENT
        | st.none(),
    ),
    st.builds(messages.NodeState, st.dictionaries(TEXTS, TEXTS, max_size=2)),
    st.builds(messages.About, TEXTS, st.lists(ADDRESSES, max_size=2).map(tuple), st.booleans()),
)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message: object) -> None:
    assert wire.decode_agent_message(wire.encode_agent_message(message)) == message


def test_every_command_and_answer_has_a_form() -> None:
    assert {one.__name__ for one in (*messages.COMMANDS, *messages.REPLIES)} <= set(wire.CLASSES)


@pytest.mark.parametrize(
    "data",
    [
        b"no JSON",
        b'{"is": "Popen", "args": ["sh"]}',
        b'{"is": "Socket", "address": "1.2.3.4"}',
        b'{"is": "address", "text": "one"}',
        b'{"is": "Protocol", "value": "HTTP"}',
        b'{"was": "Socket"}',
        b'{"is": ["Socket"]}',
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(wire.BadMessage):
        wire.decode_agent_message(data)


def test_a_class_that_is_in_no_message_is_not_sent() -> None:
    with pytest.raises(TypeError, match="object is in no message"):
        wire.encode_agent_message(messages.Got(object()))  # type: ignore[arg-type]
