"""Testbed protocol: the interface between the runner and the simulator, namespaces or a cluster.

The runner knows no more of a testbed than this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from http import HTTPStatus
from pathlib import Path
from typing import Protocol as Interface

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import Change
from kproxy.conformance.case import (
    Case,
    CheckHealth,
    CheckTraces,
    EndpointCountLocation,
    HealthRequest,
    Open,
    Ping,
    Probe,
    ReadSysctl,
    Reopen,
    Send,
    UnjudgedAction,
    UnrelatedEntries,
)
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.model.network import Address
from kproxy.spec.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of one connection or datagram.

    ``outcomes``: every outcome consistent with the evidence (a source address that is the same with and without
    masquerading allows two); empty when no lawful outcome can fit. ``endpoint``: the endpoint that replied. ``text``:
    for reports. ``probability`` of this outcome, where the testbed is exhaustive.
    """

    outcomes: frozenset[Outcome]
    text: str
    endpoint: tuple[Address, int] | None = None
    probability: Fraction = Fraction(1)
    source_port_changed: bool = False
    """True if the endpoint saw another source port than the sender's own."""
    marks: tuple[int | None, ...] = ()
    """fwmarks of the first packets as they left the sender's node, for probes that set ``mark``.

    None: another mark than was set, and the kernel (before 5.19) does not report which.
    """
    stable_text: str = ""
    """Text with values that vary between runs, such as source ports, removed; empty when `text` has none."""


class HarnessError(Exception):
    """Harness error: an observation failed for a reason outside the subject (lab, socket, agent).

    Never a verdict on the subject.
    """


class SubjectFailed(Exception):
    """Failure of a subject that concerns every case: it has ended, hangs, or never serves a Service.

    The first line names the failure and the first error that the subject logged; further lines are details for the
    report.
    """


class NothingServed(SubjectFailed):
    """Failure of a subject that has not served a single Service in this testbed, on any node or in any family."""


class Testbed(Interface):
    """Place where cases run."""

    name: str
    exhaustive: bool
    """True if `probe` returns every possible outcome with its probability, rather than a sample."""
    has_long_rounds: bool
    """True if probes of cases that run side by side may take longer than cases wait: those that wait then run by themselves."""

    def not_runnable_reason(self, case: Case) -> str | None:
        """Reason why this testbed cannot run the case; None when it can."""

    async def change(self, changes: Sequence[Change]) -> None:
        """Write changes of objects; restart proxies."""

    async def settle(self) -> None:
        """Return when the subject has applied everything that was written.

        Raises `SubjectFailed` when it never does, `HarnessError` when that could not be observed either way.
        """

    def convergence(self) -> Sequence[LatencySample]:
        """Latencies of the changes awaited so far; none where time does not pass."""

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Send ``count`` new connections; one observation each, or every possible one where `exhaustive`."""

    async def open_flow(self, instance: Instance, step: Open) -> Observation:
        """Open a flow and exchange once."""

    async def send_on_flow(self, instance: Instance, step: Send) -> Observation:
        """Exchange on a held flow."""

    async def reopen(self, instance: Instance, reopen: Reopen) -> Observation:
        """Connect again from the port of a held flow, and exchange once."""

    async def ping(self, instance: Instance, ping: Ping) -> Observation:
        """Send an ICMP echo request."""

    async def check_health(self, instance: Instance, step: HealthRequest) -> Observation:
        """Send an HTTP request to a health check node port and describe the response as `expected_health` does.

        For `CheckProxy`: request the proxy's healthz port, repeated until the expected status or its timeout,
        described as `describe_status` does.
        """

    async def read_node(self, step: ReadSysctl | CheckTraces) -> str:
        """Text of a node's setting, or of what is on it that was not before the proxy's start, as `describe_expectation`."""

    async def watch_entries(self, instance: Instance, step: UnrelatedEntries) -> Observation:
        """First call: create the step's conntrack entries.

        Later calls: report whether each still exists with the same kernel ID, as text to compare with
        `describe_expectation`.
        """

    async def act(self, instance: Instance, act: UnjudgedAction) -> None:
        """Perform an action that is not judged."""

    async def reprobe(self, instance: Instance, step: Probe | Ping | CheckHealth | Send) -> None:
        """Repeat a check that had an unlawful result, with packet capture and counters recorded for `evidence`.

        The result is not judged.
        """

    async def evidence(self, instance: Instance, folder: Path) -> None:
        """Write the evidence of a failure of that instance to a folder."""


ANSWER_LOST = "the answer was lost"
"""End of the text of a packet that an endpoint got, and whose answer never came."""
NO_ANSWER = "no answer"
"""Text of an HTTP request that nothing answered."""


def describe_status(status: int | None) -> str:
    """Text of an HTTP status from a health port; None: no HTTP server replied (`http_get`)."""
    return "refused, or not HTTP" if status is None else f"status {status}"


def describe_health(status: int, count_in: EndpointCountLocation, count: int | str | None) -> str:
    """Text of a status and the number of endpoints, where ``count_in`` names a place for it; None: the response has no number."""
    if count_in is EndpointCountLocation.BY_STATUS:
        return describe_status(status)
    return f"{describe_status(status)}, {'no number' if count is None else count} in {count_in.value}"


def expected_health(count: int | None, count_in: EndpointCountLocation) -> str:
    """Expected response of a health check node port for so many endpoints, as text; None: there is none."""
    if count is None:
        return describe_status(None)
    return describe_health(HTTPStatus.OK if count else HTTPStatus.SERVICE_UNAVAILABLE, count_in, count)
