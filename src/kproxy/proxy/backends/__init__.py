"""Backends: how a plan gets into a kernel, one folder a mode; here their protocol and their registry.

A backend is a folder, and one line in `BACKENDS`.  It imports `kproxy.proxy.plan` and itself, never another backend; what
iptables mode and ipvs mode have in common is in ``xtables``.  Nothing outside the folders names a mode: it finds the
configured one with `find_backend`, which imports that mode alone.

The same file name means the same thing in each folder:

=================  =========================================================================================
``backend``        ``BACKEND``, an object with the protocol `ProxyBackend`; imports the kernel only when it is called
``names``          names of tables, chains, sets and devices that operators and other tools know
``rules``          objects of the kernel as typed values, beside the rules of `kproxy.linux.netfilter`
``compile``        one service port of a `Plan` to rules
``static_rules``   rules that exist whatever Services there are
``desired_state``  all that one family's kernel should hold; shares what did not change with the value before
``diff``           desired states to transactions: what is written, in which order, and why that order is safe
``render``         values as the text of the command line tool, where ``rules`` does not do it
``kernel``         the only package with effects: ``applier`` has the mode's `Dataplane`; all failures are `HostError`
=================  =========================================================================================

All but ``backend`` and ``kernel`` is pure.
"""

from __future__ import annotations

import enum
import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kproxy.linux.host import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kproxy.model.network import Family
    from kproxy.proxy.daemon.config.configuration import Configuration
    from kproxy.proxy.plan import Plan

BACKENDS = {
    "iptables": "kproxy.proxy.backends.iptables.backend",
    "ipvs": "kproxy.proxy.backends.ipvs.backend",
    "nftables": "kproxy.proxy.backends.nftables.backend",
    "userspace": "kproxy.proxy.backends.userspace.backend",
}
"""Registry: by ``mode`` of the configuration, the module that has the ``BACKEND``."""

SERVICE_DEVICE = "kube-ipvs0"
"""Device on which a mode may make service addresses local; they are never the node's own, also after another mode took over."""


class Relayed(enum.Enum):
    """Part of a mode's traffic that sockets of the node relay (`kproxy.proxy.relay`)."""

    NOTHING = enum.auto()
    LOOPBACK = enum.auto()
    """Connections to node ports at 127.0.0.1."""
    EVERYTHING = enum.auto()
    """All: the mode's `Dataplane` is given plans whose endpoints are the sockets."""


class AffinityUse(NamedTuple):
    """Clients of all Services that session affinity remembers, and the most it may: more are served without it."""

    clients: int
    limit: int


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """Rules of one iptables table: written by one `Dataplane.apply`, and in the kernel after it."""

    written: int
    total: int


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of one `Dataplane.apply`.

    ``rewritten``: everything was written or compared, not only what differs.  ``changes`` counts what the kernel was given,
    by kind, as the log prints them.  ``refused``: the kernel's reason against a difference; everything was written
    instead.  ``rules`` by table, in modes whose rules are counted.  ``seconds`` is wall time.  ``problems``: what the kernel
    has no room for, each a line for the log.
    """

    rewritten: bool = True
    changes: Mapping[str, int] = field(default_factory=dict)
    refused: str | None = None
    rules: Mapping[str, RuleCounts] = field(default_factory=dict)
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    tracked: Plan | None = None
    """The plan by which connection tracking finds endpoints, where it is not the one that was given."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self.changes.items() if count)
        return f"{'all written' if self.rewritten else 'changed'}: {counts or 'nothing'}"


class Dataplane(Protocol):
    """The kernel of one family, as a backend programs it; each method raises `HostError` where it fails."""

    def apply(self, plan: Plan) -> Applied:
        """Make the kernel do what the plan says; after a failure the next call writes everything."""

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        """Changes by others since the last `apply`, as far as they are visible; ``thorough``: may start processes."""

    def notifiers(self) -> tuple[int, ...]:
        """Descriptors that are readable when the kernel reports what `find_drift` looks at; none where it reports nothing."""

    def refresh_options(self) -> bool:
        """Read again what the machine decides, such as sysctls; True if it changed what is to be written."""

    def forget(self) -> None:
        """Give up the state applied last: the next `apply` writes everything."""


class WrappedDataplane:
    """Decorator of a mode's dataplane: it passes every call on; a subclass overrides what it changes."""

    def __init__(self, plane: Dataplane) -> None:
        """Wrap a mode's own."""
        self._plane = plane

    def apply(self, plan: Plan) -> Applied:
        """As the mode's own."""
        return self._plane.apply(plan)

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        """As the mode's own."""
        return self._plane.find_drift(thorough=thorough)

    def notifiers(self) -> tuple[int, ...]:
        """As the mode's own."""
        return self._plane.notifiers()

    def refresh_options(self) -> bool:
        """As the mode's own."""
        return self._plane.refresh_options()

    def forget(self) -> None:
        """As the mode's own."""
        self._plane.forget()


class ProxyBackend(Protocol):
    """A mode, as configuration and daemon use it.  Attributes cost no import of the kernel's modules."""

    metrics: frozenset[str]
    """Names, without prefix, of those metrics that not every mode has."""

    quick_drift_checks: bool
    """A look for changes by others that is not thorough costs next to nothing; if not, only thorough ones are made."""

    localhost_node_ports: bool
    """Rules serve node ports on loopback addresses (``node-port.localhost.default.either``)."""

    relayed: Relayed
    """Part of the traffic that the relay (`kproxy.proxy.relay`) serves: no rule of the mode can."""

    primary_node_ports: bool
    """Node ports are by default accepted at the node's primary addresses alone.

    Clause ``node-port.addresses.default-not-primary.either``.
    """

    follows_service_cidrs: bool
    """ServiceCIDR objects are watched: needed to build rules, or to recognise flows that an earlier process set up."""

    counts_services: bool
    """``sync_proxy_rules_no_local_endpoints_total`` counts Services, not service ports."""

    deprecation: tuple[str, str] | None
    """Reason and note of a warning event at the start; None for none."""

    def load(self) -> None:
        """Import all that `open_dataplane` needs, before there is a hurry."""

    def open_dataplane(self, config: Configuration, family: Family) -> Dataplane:
        """The kernel of one family, checked and ready.  Raises `HostError` where it cannot serve."""

    def keeps_sources(self, config: Configuration, family: Family) -> bool:
        """True if the mode brings answers back that go to clients' own addresses, for a relay of everything."""

    def prepare_node(self, config: Configuration) -> None:
        """Do what needs more than CAP_NET_ADMIN (``cfg.init-only``).  Raises `HostError`."""

    def make_way(self, family: Family) -> None:
        """Let another mode write its first rules while what this one left still serves, until `drain`.  Raises `HostError`."""

    def drain(self, plan: Plan) -> bool:
        """Withdraw what this mode left from new connections, now that another mode serves the plan.  Raises `HostError`.

        What the plan does not serve is removed.  True while the mode holds established connections in the kernel by something
        that `remove_leftovers` would take from them.
        """

    def remove_leftovers(self, family: Family, running: str | None) -> tuple[HostError, ...]:
        """Remove what this mode left, of ours or of kube-proxy's; every refusal with its reason and cure.

        ``running`` is the mode that has just written its rules, whose objects stay (possibly this one); None: no mode.
        """

    def packet_counts(self) -> Mapping[str, int]:
        """Packets counted by rules so far, by metric; empty where rules do not count."""

    def affinity_use(self) -> Mapping[Family, AffinityUse]:
        """Clients that session affinity remembers, read now; empty in modes that have no bound of all of them."""


class CommonBackend:
    """Defaults of the facts and steps that most modes do not have."""

    metrics: frozenset[str] = frozenset()
    quick_drift_checks = True
    localhost_node_ports = False
    relayed = Relayed.NOTHING
    primary_node_ports = False
    follows_service_cidrs = False
    counts_services = False
    deprecation: tuple[str, str] | None = None

    def load(self) -> None:
        """Nothing."""

    def keeps_sources(self, config: Configuration, family: Family) -> bool:  # noqa: ARG002
        """No."""
        return False

    def prepare_node(self, config: Configuration) -> None:
        """Nothing."""

    def make_way(self, family: Family) -> None:
        """Nothing."""

    def drain(self, plan: Plan) -> bool:  # noqa: ARG002
        """No: connection tracking alone holds what rules have translated."""
        return False

    def packet_counts(self) -> Mapping[str, int]:
        """None."""
        return {}

    def affinity_use(self) -> Mapping[Family, AffinityUse]:
        """None."""
        return {}


def failures_of(remove: Callable[[], object]) -> tuple[HostError, ...]:
    """The failure of a removal as a value, for removals that go on after it."""
    try:
        remove()
    except HostError as error:
        return (error,)
    return ()


def find_backend(mode: str) -> ProxyBackend:
    """The backend of a mode in `BACKENDS`; imports its module and no other backend's.  KeyError for an unknown mode."""
    backend: ProxyBackend = importlib.import_module(BACKENDS[mode]).BACKEND
    return backend
