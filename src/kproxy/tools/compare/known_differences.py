"""Documented differences between modes: the outcomes of each, with links. Pure data.

A difference is *intended* if one entry has the observed outcomes of both sides, and the specification names one of
its clauses for the packet. All others are *unknown*, whichever side is right. Modes are those of kube-proxy, which
other proxies keep to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.conformance.case import TargetKind
from kproxy.conformance.engine.differences import Answers, ProbeDifference, outcome_kinds

VIRTUAL_IPS = "https://kubernetes.io/docs/reference/networking/virtual-ips/"
MIGRATING = f"{VIRTUAL_IPS}#migrating-from-iptables-mode-to-nftables"
NFTABLES_KEP = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3866-nftables-proxy"
CONFIGURATION = "https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/"
IPVS_SOURCE = "https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/proxy/ipvs/proxier.go"
UNIT_IPTABLES = "https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/iptables/proxier_test.go"
UNIT_NFTABLES = "https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/nftables/proxier_test.go"
LOCAL_IN_IPVS = "https://github.com/kubernetes/kubernetes/pull/97081"

IPTABLES, NFTABLES, IPVS = "iptables", "nftables", "ipvs"
_ALIKE = {"userspace": IPTABLES}
"""Modes whose first packets meet what another's do: kube-proxy has no userspace mode any more, and kproxy's takes iptables mode's places."""

SERVED = frozenset({"delivered"})
REFUSED, SILENT, LEFT_ALONE = frozenset({"rejected"}), frozenset({"dropped"}), frozenset({"untouched"})
AS_ANY = SERVED | REFUSED | SILENT
LOST = "silence; it left node"
"""Prefix of silence after the proxy has sent the packet on; a reply that goes past the proxy is lost as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedDifference:
    """Intended difference.

    ``clauses``: the specification's, one of which it names for such packets; ``outcomes``: the outcomes of each mode,
    in the texts of `kproxy.conformance.engine.differences.outcome_kinds`; ``frontends``: only these, if not empty.
    ``unlawful``: modes whose outcome is known and not lawful; in all other modes an unlawful outcome is never
    intended.
    """

    id: str
    text: str
    links: tuple[str, ...]
    clauses: frozenset[str]
    outcomes: Mapping[str, frozenset[str]]
    frontends: frozenset[TargetKind] = frozenset()
    unlawful: frozenset[str] = frozenset()

    def covers(self, found: ProbeDifference, modes: tuple[str, str]) -> bool:
        """True if a difference is this one: its clause, and the known outcomes of both modes."""
        named = self.clauses & set(found.probe.clauses)
        front = not self.frontends or found.probe.to.kind in self.frontends
        other = outcome_kinds(found.seen[0]) != outcome_kinds(found.seen[1])
        bad = {mode for mode, unlawful in zip(modes, found.unlawful, strict=True) if unlawful}
        return (
            bool(named)
            and front
            and other
            and bad <= self.unlawful
            and all(self._does(mode, seen) for mode, seen in zip(modes, found.seen, strict=True))
        )

    def _does(self, mode: str, seen: Answers) -> bool:
        known = self.outcomes.get(_ALIKE.get(mode, mode))
        return known is not None and all(
            kind in known or any(k == LOST and kind.startswith(LOST) for k in known)
            for kind in outcome_kinds(seen)
        )


DOCUMENTED_DIFFERENCES = (
    DocumentedDifference(
        id="node-ports-on-primary-addresses",
        text="nftables mode serves node ports at a node's primary addresses only, iptables and ipvs mode at all of its "
        "addresses (nodePortAddresses changes both)",
        links=(MIGRATING, CONFIGURATION, NFTABLES_KEP),
        clauses=frozenset({"node-port.addresses.default-not-primary.either"}),
        outcomes={IPTABLES: AS_ANY, IPVS: AS_ANY, NFTABLES: LEFT_ALONE | REFUSED | SILENT},
        frontends=frozenset({TargetKind.NODE_PORT_SECOND}),
    ),
    DocumentedDifference(
        id="node-ports-on-localhost",
        text="iptables mode serves node ports at 127.0.0.1 too, the others do not (localhostNodePorts)",
        links=(MIGRATING, CONFIGURATION, NFTABLES_KEP),
        clauses=frozenset({"node-port.localhost.default.either"}),
        outcomes={
            IPTABLES: AS_ANY,
            NFTABLES: LEFT_ALONE | REFUSED | SILENT,
            IPVS: LEFT_ALONE | REFUSED | SILENT,
        },
        frontends=frozenset({TargetKind.NODE_PORT_LOCALHOST}),
    ),
    DocumentedDifference(
        id="undefined-ports-are-refused",
        text="a port that a Service does not have at its cluster IP is refused in nftables and ipvs mode; iptables mode "
        "leaves the packet to routing, where it usually gets lost",
        links=(NFTABLES_KEP, UNIT_NFTABLES),
        clauses=frozenset(
            {"cluster-ip.undefined-port.not-served", "cluster-ip.undefined-protocol.not-served"}
        ),
        outcomes={IPTABLES: LEFT_ALONE, NFTABLES: REFUSED, IPVS: REFUSED},
    ),
    DocumentedDifference(
        id="unallocated-cluster-ips-are-dropped",
        text="a cluster IP that no Service has is dropped in nftables mode, and left to routing in the others",
        links=(NFTABLES_KEP, UNIT_NFTABLES),
        clauses=frozenset({"cluster-ip.unallocated.not-served"}),
        outcomes={IPTABLES: LEFT_ALONE, NFTABLES: SILENT, IPVS: LEFT_ALONE},
    ),
    DocumentedDifference(
        id="nobody-behind-an-external-address",
        text="a node that sends to an external address without endpoints is refused in nftables and ipvs mode; in iptables "
        "mode its packet leaves the node",
        links=(UNIT_IPTABLES, UNIT_NFTABLES),
        clauses=frozenset({"endpoints.none.host-to-external-address.either"}),
        outcomes={IPTABLES: LEFT_ALONE, NFTABLES: REFUSED, IPVS: REFUSED},
    ),
    DocumentedDifference(
        id="source-ranges-without-endpoints",
        text="without endpoints a source outside loadBalancerSourceRanges is refused in iptables mode, and gets silence in "
        "the others",
        links=(UNIT_IPTABLES, UNIT_NFTABLES),
        clauses=frozenset({"source-ranges.no-endpoint.either"}),
        outcomes={IPTABLES: REFUSED | LEFT_ALONE, NFTABLES: SILENT, IPVS: SILENT | REFUSED},
    ),
    DocumentedDifference(
        id="where-nobody-answers-node-ports",
        text="refusals and silence of node ports without endpoints hold in some modes at addresses that serve none, too",
        links=(UNIT_IPTABLES, NFTABLES_KEP),
        clauses=frozenset({"node-port.addresses.reject-scope.either"}),
        outcomes=dict.fromkeys((IPTABLES, NFTABLES, IPVS), LEFT_ALONE | REFUSED | SILENT),
    ),
    DocumentedDifference(
        id="ipvs-internal-policy-local",
        text="without a local endpoint, internalTrafficPolicy Local refuses in ipvs mode, or leads to other nodes where the "
        "Service has external addresses",
        links=(IPVS_SOURCE,),
        clauses=frozenset({"internal-policy.local.drop-without-local-endpoint"}),
        outcomes={IPVS: REFUSED | SERVED | {LOST}, IPTABLES: SILENT, NFTABLES: SILENT},
        unlawful=frozenset({IPVS}),
    ),
    DocumentedDifference(
        id="ipvs-external-policy-local",
        text="without a local endpoint, externalTrafficPolicy Local leads to other nodes in ipvs mode, whose endpoints see "
        "the client's address and cannot answer",
        links=(LOCAL_IN_IPVS,),
        clauses=frozenset({"external-policy.local.drop-without-local-endpoint"}),
        outcomes={IPVS: REFUSED | SERVED | {LOST}, IPTABLES: SILENT, NFTABLES: SILENT},
        unlawful=frozenset({IPVS}),
    ),
)


def documented_difference(found: ProbeDifference, modes: tuple[str, str]) -> DocumentedDifference | None:
    """Entry that a difference is an instance of; None: unknown."""
    return next((entry for entry in DOCUMENTED_DIFFERENCES if entry.covers(found, modes)), None)
