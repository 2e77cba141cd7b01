"""The rule set in docs/backends/iptables.md: what iptables mode writes on one node of docs/examples/cluster.yaml."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path

import yaml

from kproxy.model.api import parse_cluster
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables.desired_state import desired_state
from kproxy.proxy.backends.iptables.diff import diff
from kproxy.proxy.backends.iptables.static_rules import Options, hook_rules
from kproxy.proxy.backends.xtables.blocks import NFT_BLOCK_CHAINS
from kproxy.proxy.backends.xtables.rules import hook_specification
from kproxy.proxy.plan import DetectByCIDR, PlanSettings, make_plan
from kproxy.proxy.snapshot import normalise
from tools.docgen.tables import replace_region

DOCS = Path(__file__).parents[2] / "docs"
SETTINGS = PlanSettings(family=Family.IPV4, node="node-a", detector=DetectByCIDR(ip_network("10.244.0.0/16")))


def page() -> str:
    """The page with the rules as they are now."""
    text = (DOCS / "backends/iptables.md").read_text(encoding="utf-8")
    text = replace_region(text, "hooks", f"```text\n{_hooks()}\n```")
    return replace_region(text, "rules", f"```text\n{_rules()}\n```")


def _hooks() -> str:
    """The first rules of the builtin chains."""
    return "\n".join(
        f"-t {hook.table.value:6} -I {hook.hook.name:11} {hook_specification(rule)}"
        for hook in hook_rules(localhost=True)
        for rule in hook.rules
    )


def _rules() -> str:
    """The first transaction on an empty kernel, as ``iptables-restore`` is given it."""
    objects = yaml.safe_load((DOCS / "examples/cluster.yaml").read_text(encoding="utf-8"))
    cluster = parse_cluster(json.dumps(objects, default=str).encode())
    desired = desired_state(make_plan(normalise(cluster, Family.IPV4), SETTINGS), Options())
    return str(diff({}, desired, NFT_BLOCK_CHAINS)).strip()
