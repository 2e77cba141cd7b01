"""Mutants of loadBalancerSourceRanges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End, Jump
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Exposure, Frontend
from tests.mutants.mutant import Function, Patch, in_ipvs, mutant
from tests.mutants.patches.iptables import FILTER, RANGES, Rules, left_out, without
from tests.mutants.patches.ipvs import left_out_of_chain, without_members
from tests.mutants.patches.objects import with_services


def _fifty(ranges: Function) -> Function:
    def some(*of: Any) -> Any:  # noqa: ANN401
        found = ranges(*of)
        return found[:50] if found else found

    return some


def _cut(ranges: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return tuple(ranges)[:1] if ranges else None


def _guarded_external_ips(external: Function) -> Function:
    def frontend(port: Any, exposure: Exposure, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, exposure, *of)
        return (
            msgspec.structs.replace(found, sources=port.service.source_ranges)
            if exposure is Exposure.EXTERNAL_IP
            else found
        )

    return frontend


def _barred_from_itself(external: Function) -> Function:
    return lambda *of: msgspec.structs.replace(external(*of), allow_hairpin_source=False)


MUTANTS = (
    mutant(
        "source-ranges.drop",
        "Sources outside the ranges are not dropped.",
        *left_out(Rules(chain=names.PROXY_FIREWALL, target=End.DROP, table=FILTER)),
        clauses="source-ranges.outside-dropped",
    ),
    mutant(
        "source-ranges.everyone-admitted",
        "Every source counts as inside the ranges.",
        *without(Rules(chain=RANGES, target=Jump), FieldName.SOURCE),
        clauses="source-ranges.outside-dropped",
    ),
    mutant(
        "source-ranges.nobody-admitted",
        "No source counts as inside the ranges.",
        *left_out(Rules(chain=RANGES, target=Jump)),
        clauses="source-ranges.inside-allowed",
    ),
    mutant(
        "source-ranges.forwarded",
        "Ranges do not bind forwarded packets.",
        *left_out(Rules(chain="FORWARD", target=Jump(names.PROXY_FIREWALL), table=FILTER)),
        clauses="source-ranges.outside-dropped source-ranges.apply-to-pods",
    ),
    mutant(
        "source-ranges.own-packets",
        "Ranges do not bind the node's own packets.",
        *left_out(Rules(chain="OUTPUT", target=Jump(names.PROXY_FIREWALL), table=FILTER)),
        clauses="source-ranges.apply-to-host",
    ),
    mutant(
        "services.first-range-only",
        "Of several source ranges only the first counts.",
        with_services(
            lambda service: msgspec.structs.replace(service, source_ranges=_cut(service.source_ranges))
        ),
        clauses="source-ranges.inside-allowed",
    ),
    mutant(
        "source-ranges.first-fifty",
        "Of a Service's source ranges the first fifty count.",
        Patch("kproxy.proxy.snapshot.services:_source_ranges", _fifty),
        clauses="source-ranges.inside-allowed",
    ),
    mutant(
        "source-ranges.own-address-barred",
        "A node that sends to a load balancer IP of its own is judged by that address alone.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _barred_from_itself),
        clauses="source-ranges.node-with-vip-as-source.allowed",
        needs_kernel=True,
    ),
    mutant(
        "source-ranges.external-ips-too",
        "Source ranges bind external IPs.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _guarded_external_ips),
        clauses="source-ranges.external-ip-exempt",
    ),
    in_ipvs(
        "ipvs.source-ranges.arriving",
        "Ranges do not bind packets that arrive.",
        left_out_of_chain(TableName.FILTER, ipvs_names.PROXY_FIREWALL),
        clauses="source-ranges.outside-dropped",
    ),
    in_ipvs(
        "ipvs.source-ranges.own-packets",
        "Ranges do not bind the node's own packets.",
        left_out_of_chain(TableName.MANGLE, ipvs_names.IPVS_OUT_FILTER),
        clauses="source-ranges.apply-to-host",
    ),
    in_ipvs(
        "ipvs.set.load-balancer-fw",
        "Nothing is put into KUBE-LOAD-BALANCER-FW.",
        without_members(IpSet.LOAD_BALANCER_FIREWALL),
        clauses="source-ranges.outside-dropped",
    ),
    in_ipvs(
        "ipvs.set.load-balancer-source-cidr",
        "Nothing is put into KUBE-LOAD-BALANCER-SOURCE-CIDR.",
        without_members(IpSet.LOAD_BALANCER_SOURCE_CIDR),
        clauses="source-ranges.inside-allowed",
    ),
    in_ipvs(
        "ipvs.set.load-balancer-source-ip",
        "Nothing is put into KUBE-LOAD-BALANCER-SOURCE-IP.",
        without_members(IpSet.LOAD_BALANCER_SOURCE_IP),
        clauses="source-ranges.apply-to-host source-ranges.inside-allowed",
    ),
)
