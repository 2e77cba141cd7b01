"""Mutants of load balancer IPs."""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.linux.netfilter.rules import Jump
from kproxy.model import api
from kproxy.proxy.backends.iptables import names
from tests.mutants.mutant import Function, Patch, mutant
from tests.mutants.patches.iptables import EXTERNAL, Rules, left_out


def _any_mode(load_balancer_ips: Function) -> Function:
    def captured(status: api.LoadBalancerStatus, *of: Any) -> Any:  # noqa: ANN401
        ingress = [msgspec.structs.replace(entry, ip_mode=None) for entry in status.ingress or ()]
        return load_balancer_ips(api.LoadBalancerStatus(ingress=ingress), *of)

    return captured


MUTANTS = (
    mutant(
        "dispatch.load-balancer",
        "Load balancer IPs are not taken to Services.",
        *left_out(Rules(chain=names.SERVICES, target=Jump(EXTERNAL), comment=" loadbalancer IP")),
        clauses="load-balancer.reaches-ready-endpoint",
    ),
    mutant(
        "services.ip-mode-ignored",
        "Load balancer IPs of mode Proxy are captured.",
        Patch("kproxy.proxy.snapshot.services:_load_balancer_ips", _any_mode),
        clauses="load-balancer.ip-mode-proxy.untouched",
    ),
)
