"""Probes that no ordinary socket can send (martians, spoofed sources, bare SCTP INITs), built as raw packets.

See `kproxy.lab.probes.crafted`.
"""

from __future__ import annotations

from kproxy.conformance.binding.bind import LOOPBACK_DAEMON_PORT, Instance
from kproxy.conformance.case import Probe, TargetKind, VantageKind
from kproxy.conformance.testbed import Observation
from kproxy.conformance.testbeds.interpret import interpret_step
from kproxy.lab.lab import Lab
from kproxy.lab.probes import crafted
from kproxy.lab.probes.observation import Socket
from kproxy.lab.topology import LOOPBACK
from kproxy.model.network import Protocol
from kproxy.spec.outcome import Failure


def needs_raw_packet(probe: Probe) -> bool:
    """True if a probe needs a raw packet rather than a socket."""
    return probe.init_chunk_only or probe.sender.kind is VantageKind.SPOOFED or _martian(probe)


def _martian(probe: Probe) -> bool:
    return probe.to.kind is TargetKind.LOOPBACK_DAEMON and probe.sender.kind is not VantageKind.HOST


async def send_raw_probe(
    lab: Lab, instance: Instance, probe: Probe, patience: float, host_index: int
) -> Observation:
    """Send one; ``host_index``: number of a host among `UNUSED_HOSTS`.

    No record for ``patience`` seconds is silence.
    """
    packet = instance.bound_packet(probe.sender, probe.to).packet
    source, to = (
        instance.source_address(probe.sender, probe.to, host_index),
        Socket(packet.destination, packet.port),
    )
    if _martian(probe):
        return await _send_to_loopback(lab, instance, probe, patience)
    if probe.init_chunk_only:
        seen = await crafted.send_sctp_init(lab, probe.sender.name, source, to, patience)
    else:
        seen = await crafted.send_spoofed(lab, probe.sender.node, source, to, patience)
    return interpret_step(seen, instance, probe)


async def _send_to_loopback(lab: Lab, instance: Instance, probe: Probe, patience: float) -> Observation:
    daemon = Socket(LOOPBACK[instance.family], LOOPBACK_DAEMON_PORT)
    protocol = probe.to.protocol or Protocol.TCP
    source = instance.source_address(probe.sender, probe.to)
    seen = await crafted.send_martian(lab, probe.to.node, source, daemon, protocol, patience)
    if seen.delivered:
        text = f"a packet from outside reached the daemon on node {probe.to.node}'s loopback address"
        return Observation(frozenset({Failure.UNTOUCHED}), text)
    return Observation(frozenset({Failure.DROPPED}), "the daemon got nothing")
