"""Configuration of a cluster's service proxy, which a run may change where it is allowed to (``--configure``).

The proxy is a DaemonSet with a ConfigMap of the same name, whose ``config.conf`` is a KubeProxyConfiguration, as kubeadm
installs kube-proxy and `deploy` installs kproxy. For the cases of a profile its fields are written there and the pods are
replaced; afterwards the text that was found is written back. A profile that needs more than fields, or addresses that
are the lab's, cannot be had (`is_configurable`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from ipaddress import ip_network
from typing import Any

import yaml

from kproxy.conformance.case import DEFAULT, Profile
from kproxy.conformance.testbed import HarnessError
from kproxy.lab.kube.store import KubeStore
from kproxy.lab.topology import LAB
from kproxy.model.network import family_of

ROLLOUT_SECONDS = 120.0

_KEY = "config.conf"
_MERGE = "application/merge-patch+json"
_ANNOTATION = "kproxy.conformance/configured-at"
_POLL = 0.2
_SETTABLE = frozenset(
    {
        *("name", "detect_mode", "detect_families", "masquerade_all", "masquerade_bit"),
        *("node_port_addresses", "localhost_node_ports", "allow_external_ips"),
    }
)
"""Fields of a profile that a running cluster's proxy can be given, and taken again without a trace in the kernel."""
_DETECT_MODES = (None, "ClusterCIDR", "NodeCIDR")
"""Those that name no interface of the lab's."""


def is_configurable(profile: Profile) -> bool:
    """True if a cluster's proxy can be configured as this profile says."""
    changed = {
        entry.name
        for entry in fields(profile)
        if getattr(profile, entry.name) != getattr(DEFAULT, entry.name)
    }
    return (
        changed <= _SETTABLE
        and profile.detect_mode in _DETECT_MODES
        and not any(map(_names_lab_nodes, profile.node_port_addresses))
    )


def _names_lab_nodes(text: str) -> bool:
    """True for a range that has some addresses of the lab's nodes and not all: a cluster's nodes have others."""
    if text == "primary":
        return False
    network = ip_network(text)
    return network.prefixlen > 0 and any(
        address in network
        for of_node in (LAB.node_address, LAB.pod_gateway)
        for each in of_node.values()
        for address in each.values()
    )


def configured(found: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """A proxy's configuration with the fields of a profile; the ranges of its pods are those that it had."""
    document = dict(found)
    if profile.detect_mode is None:
        document["clusterCIDR"] = ""
    elif ranges := str(found.get("clusterCIDR", "")):
        chosen = (text for text in ranges.split(",") if _family(text) in profile.detect_families)
        document["clusterCIDR"] = ",".join(chosen)
    document["detectLocalMode"] = profile.detect_mode or "ClusterCIDR"
    document["nodePortAddresses"] = list(profile.node_port_addresses)
    for section in ("iptables", "nftables"):
        masquerade = {"masqueradeAll": profile.masquerade_all, "masqueradeBit": profile.masquerade_bit}
        document[section] = {**(found.get(section) or {}), **masquerade}
    if profile.localhost_node_ports is not None:
        document["iptables"]["localhostNodePorts"] = profile.localhost_node_ports
    if not profile.allow_external_ips:
        gates = found.get("featureGates") or {}
        document["featureGates"] = {**gates, "AllowServiceExternalIPs": False}
    return document


def _family(text: str) -> object:
    return family_of(ip_network(text).network_address)


@dataclass(frozen=True, slots=True)
class ProxyDaemonSet:
    """The cluster's proxy; ``name``: of its DaemonSet and ConfigMap."""

    store: KubeStore
    namespace: str
    name: str

    @asynccontextmanager
    async def having(self, profile: Profile) -> AsyncIterator[None]:
        """Context in which it runs with a profile's configuration; the default's is the one that it has."""
        if profile == DEFAULT:
            yield
            return
        found = await asyncio.to_thread(self.read)
        wanted = yaml.safe_dump(configured(yaml.safe_load(found), profile))
        try:
            await asyncio.to_thread(self._replace, wanted)
            yield
        finally:
            await asyncio.to_thread(self._replace, found)

    def read(self) -> str:
        """Text of its configuration.  Raises `HarnessError`."""
        found = self.store.request("GET", self._config_map, tolerated=(404,))
        try:
            return str(found["data"][_KEY])
        except KeyError:
            raise HarnessError(
                f"--configure {self.namespace}/{self.name}: there is no ConfigMap of that name with the key {_KEY}"
            ) from None

    @property
    def _config_map(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    @property
    def _daemon_set(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets/{self.name}"

    def _replace(self, text: str) -> None:
        """Write a configuration, replace the pods, and wait until they are ready.  Raises `HarnessError`."""
        self.store.request("PATCH", self._config_map, {"data": {_KEY: text}}, _MERGE)
        annotations = {"metadata": {"annotations": {_ANNOTATION: str(time.time_ns())}}}
        self.store.request("PATCH", self._daemon_set, {"spec": {"template": annotations}}, _MERGE)
        deadline = time.monotonic() + ROLLOUT_SECONDS
        while not _is_rolled_out(self.store.request("GET", self._daemon_set)):
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"the pods of {self.namespace}/{self.name} are not ready {ROLLOUT_SECONDS:g} s after a change"
                )
            time.sleep(_POLL)


def _is_rolled_out(daemon_set: Mapping[str, Any]) -> bool:
    status = daemon_set["status"]
    if status.get("observedGeneration", 0) < daemon_set["metadata"]["generation"]:
        return False
    counts = {status.get(name, 0) for name in ("updatedNumberScheduled", "numberAvailable")}
    return counts == {status["desiredNumberScheduled"]}
