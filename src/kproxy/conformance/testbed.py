"""What a testbed must be able to do, and what it reports.

The runner knows no more of the simulator, the namespaces or a cluster than this.
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
    EndpointCountLocation,
    HealthRequest,
    Open,
    Ping,
    Probe,
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
    """What one connection or datagram met.

    ``outcomes``: every reading of it that the evidence allows (a source address that would be the
    same with and without masquerade leaves two); empty for what can never be lawful.
    ``endpoint``: which endpoint answered.  ``text``: for people.  ``probability``: how likely this is, where the testbed
    is exhaustive.
    """

    outcomes: frozenset[Outcome]
    text: str
    endpoint: tuple[Address, int] | None = None
    probability: Fraction = Fraction(1)
    source_port_changed: bool = False
    """Whether the endpoint saw another source port than the sender's own."""
    marks: tuple[int | None, ...] = ()
    """The marks that its first packets left the sender's node with, where that is asked for.

    None: another than was set, on a kernel that does not report which.
    """
    stable_text: str = ""
    """The text without what is another one each time, such as source ports, where that is not the text itself."""


class HarnessError(Exception):
    """The harness could not observe; says nothing about the subject."""


class SubjectFailed(Exception):
    """The subject does not do what every case needs: it has ended, stands still, or never serves a Service.

    The first line names what it did and the first error that it logged; the lines after it are for people.
    """


class NothingServed(SubjectFailed):
    """It has not served a single Service in this testbed, on all nodes and in all families."""


class Testbed(Interface):
    """Where cases run."""

    name: str
    exhaustive: bool
    """Whether `probe` returns every possible outcome with its chance, rather than a sample."""

    def not_runnable_reason(self, case: Case) -> str | None:
        """Why this testbed cannot run the case; None when it can."""

    async def change(self, changes: Sequence[Change]) -> None:
        """Write changes of objects; restart proxies."""

    async def settle(self) -> None:
        """Return when the subject has applied all that was written.

        Raises `SubjectFailed` when it never does, `HarnessError` when what it serves could not be observed either way.
        """

    def convergence(self) -> Sequence[LatencySample]:
        """How long the changes have taken that were waited for up to now; none where time does not pass."""

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Send ``count`` new connections."""

    async def open_flow(self, instance: Instance, step: Open) -> Observation:
        """Open a flow and exchange once."""

    async def send_on_flow(self, instance: Instance, step: Send) -> Observation:
        """Exchange on a held flow."""

    async def reopen(self, instance: Instance, reopen: Reopen) -> Observation:
        """Open a held flow anew from the same port, and exchange once."""

    async def ping(self, instance: Instance, ping: Ping) -> Observation:
        """Send an ICMP echo request."""

    async def check_health(self, instance: Instance, step: HealthRequest) -> Observation:
        """Ask a health check node port; what came of it as `expected_health` says it.

        Or a node's proxy, until its answer is the one expected or a while has passed; as `describe_status` says it.
        """

    async def read_sysctl(self, node: str, name: str) -> str:
        """The value of a setting below ``net`` in a node's network namespace."""

    async def watch_entries(self, instance: Instance, step: UnrelatedEntries) -> Observation:
        """Make connection tracking entries; asked again, whether they are still the same.  The text says it as `demands`."""

    async def act(self, instance: Instance, act: UnjudgedAction) -> None:
        """Let something happen that is not judged."""

    async def reprobe(self, instance: Instance, step: Probe | Ping | CheckHealth | Send) -> None:
        """Ask once more what met something unlawful, and remember all that can be seen of it for `evidence`."""

    async def evidence(self, instance: Instance, folder: Path) -> None:
        """Write what a person needs to understand a failure of that instance."""


def describe_status(status: int | None) -> str:
    """What a node answers that is asked for health, in words; None: nobody listens there."""
    return "refused" if status is None else f"status {status}"


def describe_health(status: int, count_in: EndpointCountLocation, count: int | str | None) -> str:
    """The same with the number of endpoints, where that is asked for; None: it is not told."""
    if count_in is EndpointCountLocation.BY_STATUS:
        return describe_status(status)
    return f"{describe_status(status)}, {'no number' if count is None else count} in {count_in.value}"


def expected_health(count: int | None, count_in: EndpointCountLocation) -> str:
    """What a health check node port must answer where there are so many endpoints; None: refuse."""
    if count is None:
        return describe_status(None)
    return describe_health(HTTPStatus.OK if count else HTTPStatus.SERVICE_UNAVAILABLE, count_in, count)
