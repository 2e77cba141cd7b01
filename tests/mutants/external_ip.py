"""Mutants of external IPs."""

from __future__ import annotations

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End, Jump
from kproxy.proxy.backends.iptables import names
from tests.mutants.mutant import Patch, mutant
from tests.mutants.patches.iptables import EXTERNAL, FILTER, Rules, left_out, without
from tests.mutants.patches.settings import with_settings

MUTANTS = (
    mutant(
        "source-ranges.every-port",
        "Ranges bind the whole address, and not the Service's port alone.",
        *without(Rules(chain=names.PROXY_FIREWALL, target=End.DROP, table=FILTER), FieldName.PROTOCOL),
        clauses="external-address.undefined-port.not-served",
        needs_kernel=True,
    ),
    mutant(
        "dispatch.external-ip",
        "External IPs are not taken to Services.",
        *left_out(Rules(chain=names.SERVICES, target=Jump(EXTERNAL), comment=" external IP")),
        clauses="external-ip.reaches-ready-endpoint",
    ),
    mutant(
        "configuration.external-ips-gate-ignored",
        "External IPs are served though the gate forbids it.",
        Patch("kproxy.proxy.plan.planner:plan_service", with_settings(allow_external_ips=True)),
        clauses="external-ip.disabled.untouched",
    ),
)
