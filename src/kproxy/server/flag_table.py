"""The flags of today's kube-proxy as a table: what each takes, and the field of the file it stands for.

Below `kproxy.server.resolve`.  Pure data.  A row's field is written in the file's words; ``{paced}`` and ``{masquerade}``
stand for the section of the selected mode (``cfg.mode-sections``, ``cfg.iptables-sync-flags``).

Source: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-proxy/ (1.36)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kproxy.server.flags import Flag, Kind

PACED = "{paced}"
MASQUERADE = "{masquerade}"


class Row(NamedTuple):
    """A flag and its field; without a field it is no part of the configuration."""

    flag: Flag
    field: str = ""


def _row(name: str, kind: Kind, field: str, about: str) -> Row:
    return Row(Flag(name, kind, about), field)


ACTIONS = (
    Row(Flag("config", Kind.STRING, "the configuration file; most other flags do not count beside it")),
    Row(
        Flag(
            "write-config-to", Kind.STRING, "write the configuration that would be run to this file, and exit"
        )
    ),
    Row(Flag("cleanup", Kind.BOOL, "remove the rules of all modes and both families, and exit")),
    Row(Flag("init-only", Kind.BOOL, "do what needs full root privileges, and exit")),
    Row(Flag("master", Kind.STRING, "URL of the API server; beats the kubeconfig's")),
    Row(Flag("version", Kind.VERSION, "print the version and exit")),
    Row(Flag("help", Kind.BOOL, "print this and exit", short="h")),
)
"""What is done, and with what: these count with a file too (``cfg.file-wins``)."""

LOGGING = (
    Row(Flag("v", Kind.INT, "how much is logged; 4 and up: debugging", short="v"), "logging.verbosity"),
    _row("vmodule", Kind.PATTERNS, "logging.vmodule", "the same for modules whose name matches, as store=4"),
    _row("logging-format", Kind.STRING, "logging.format", "text or json"),
    _row(
        "log-flush-frequency",
        Kind.DURATION,
        "logging.flushFrequency",
        "accepted; every line is written at once",
    ),
    _row(
        "log-text-split-stream",
        Kind.BOOL,
        "logging.options.text.splitStream",
        "information to standard output",
    ),
    _row(
        "log-text-info-buffer-size",
        Kind.STRING,
        "logging.options.text.infoBufferSize",
        "accepted; not buffered",
    ),
    _row(
        "log-json-split-stream",
        Kind.BOOL,
        "logging.options.json.splitStream",
        "information to standard output",
    ),
    _row(
        "log-json-info-buffer-size",
        Kind.STRING,
        "logging.options.json.infoBufferSize",
        "accepted; not buffered",
    ),
)
"""These beat the file's logging section."""

HOSTNAME_OVERRIDE = _row(
    "hostname-override", Kind.STRING, "hostnameOverride", "this node's name; beats the file's"
)

HEALTHZ_PORT = Row(
    Flag(
        "healthz-port",
        Kind.INT,
        "port of the health server; 0: none",
        deprecated="use --healthz-bind-address",
    )
)
METRICS_PORT = Row(
    Flag("metrics-port", Kind.INT, "port of the metrics server", deprecated="use --metrics-bind-address")
)

SETTINGS = (
    _row("feature-gates", Kind.GATES, "featureGates", "Gate=true or Gate=false, with commas between"),
    _row(
        "kubeconfig",
        Kind.STRING,
        "clientConnection.kubeconfig",
        "how to reach the API server; default: as a pod",
    ),
    _row(
        "kube-api-content-type", Kind.STRING, "clientConnection.contentType", "accepted; requests are in JSON"
    ),
    _row("kube-api-burst", Kind.INT, "clientConnection.burst", "requests at once"),
    _row("kube-api-qps", Kind.FLOAT, "clientConnection.qps", "requests a second"),
    _row(
        "bind-address", Kind.STRING, "bindAddress", "this node's IP, where the Node object is not to be asked"
    ),
    _row(
        "healthz-bind-address",
        Kind.STRING,
        "healthzBindAddress",
        "IP:port of /healthz and /livez; empty: none",
    ),
    _row("metrics-bind-address", Kind.STRING, "metricsBindAddress", "IP:port of /metrics"),
    _row("bind-address-hard-fail", Kind.BOOL, "bindAddressHardFail", "exit when one of them cannot be had"),
    _row("profiling", Kind.BOOL, "enableProfiling", "/debug/pprof on the metrics server"),
    _row("show-hidden-metrics-for-version", Kind.STRING, "showHiddenMetricsForVersion", "as 1.35"),
    _row("proxy-mode", Kind.STRING, "mode", "iptables (default), ipvs or nftables"),
    _row("masquerade-all", Kind.BOOL, f"{MASQUERADE}.masqueradeAll", "masquerade all traffic to cluster IPs"),
    _row(
        "iptables-masquerade-bit",
        Kind.INT,
        "iptables.masqueradeBit",
        "bit of the packet mark, of iptables and ipvs",
    ),
    _row("iptables-localhost-nodeports", Kind.BOOL, "iptables.localhostNodePorts", "node ports on 127.0.0.1"),
    _row(
        "iptables-sync-period", Kind.DURATION, f"{PACED}.syncPeriod", "longest time without a look (not ipvs)"
    ),
    _row(
        "iptables-min-sync-period",
        Kind.DURATION,
        f"{PACED}.minSyncPeriod",
        "least time between syncs (not ipvs)",
    ),
    _row("ipvs-sync-period", Kind.DURATION, "ipvs.syncPeriod", "longest time without a sync"),
    _row("ipvs-min-sync-period", Kind.DURATION, "ipvs.minSyncPeriod", "least time between syncs"),
    _row("ipvs-scheduler", Kind.STRING, "ipvs.scheduler", "how ipvs chooses; default rr"),
    _row("ipvs-exclude-cidrs", Kind.LIST, "ipvs.excludeCIDRs", "virtual servers there are not touched"),
    _row("ipvs-strict-arp", Kind.BOOL, "ipvs.strictARP", "arp_ignore 1 and arp_announce 2"),
    _row("ipvs-tcp-timeout", Kind.DURATION, "ipvs.tcpTimeout", "of idle connections; 0: the kernel's"),
    _row("ipvs-tcpfin-timeout", Kind.DURATION, "ipvs.tcpFinTimeout", "after a FIN; 0: the kernel's"),
    _row("ipvs-udp-timeout", Kind.DURATION, "ipvs.udpTimeout", "of UDP packets; 0: the kernel's"),
    _row(
        "detect-local-mode",
        Kind.STRING,
        "detectLocalMode",
        "ClusterCIDR (default), NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    ),
    _row("pod-bridge-interface", Kind.STRING, "detectLocal.bridgeInterface", "pods are behind this bridge"),
    _row(
        "pod-interface-name-prefix",
        Kind.STRING,
        "detectLocal.interfaceNamePrefix",
        "pods are behind such interfaces",
    ),
    _row("cluster-cidr", Kind.STRING, "clusterCIDR", "network of the pods, or one of each family"),
    _row("nodeport-addresses", Kind.LIST, "nodePortAddresses", "CIDRs that accept node ports, or primary"),
    _row("oom-score-adj", Kind.INT, "oomScoreAdj", "of this process, within [-1000, 1000]"),
    _row("conntrack-max-per-core", Kind.INT, "conntrack.maxPerCore", "tracked connections; 0: as it is"),
    _row("conntrack-min", Kind.INT, "conntrack.min", "tracked connections at least"),
    _row(
        "conntrack-tcp-timeout-established",
        Kind.DURATION,
        "conntrack.tcpEstablishedTimeout",
        "of idle connections; 0: as it is",
    ),
    _row("conntrack-tcp-timeout-close-wait", Kind.DURATION, "conntrack.tcpCloseWaitTimeout", "0: as it is"),
    _row("conntrack-tcp-be-liberal", Kind.BOOL, "conntrack.tcpBeLiberal", "packets out of window are valid"),
    _row(
        "conntrack-udp-timeout", Kind.DURATION, "conntrack.udpTimeout", "of UDP without answer; 0: as it is"
    ),
    _row(
        "conntrack-udp-timeout-stream",
        Kind.DURATION,
        "conntrack.udpStreamTimeout",
        "of UDP both ways; 0: as it is",
    ),
    _row("config-sync-period", Kind.DURATION, "configSyncPeriod", "accepted; lists and watches decide"),
)
"""What stands for a field of the file, and counts only without one."""

IGNORED = (
    Row(Flag("boot-id-file", Kind.STRING, "accepted; nothing reads it")),
    Row(Flag("machine-id-file", Kind.STRING, "accepted; nothing reads it")),
)
"""Flags that a library brings into kube-proxy."""

ROWS = (*ACTIONS, HOSTNAME_OVERRIDE, *SETTINGS, *LOGGING, *IGNORED, HEALTHZ_PORT, METRICS_PORT)
FLAGS = tuple(row.flag for row in ROWS)

_TO_STDERR = "logs go to standard error; a container runtime or a service manager keeps them"

GONE: Mapping[str, str] = {
    "cleanup-ipvs": "--cleanup alone removes what ipvs mode left too",
    "cleanup-iptables": "use --cleanup",
    "udp-timeout": "userspace mode is no more; see --conntrack-udp-timeout for how long idle UDP is tracked",
    "proxy-port-range": "userspace mode is no more, and no other mode opens ports for Services",
    "resource-container": "a container runtime or a service manager puts the process in its cgroup",
    "windows-service": "this proxy is for Linux",
    "azure-container-registry-config": "it never concerned a proxy",
    "google-json-key": "it never concerned a proxy",
    **dict.fromkeys(
        (
            "logtostderr",
            "alsologtostderr",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "one-output",
            "stderrthreshold",
        ),
        _TO_STDERR,
    ),
    **dict.fromkeys(
        ("add-dir-header", "skip-headers", "skip-log-headers", "log-backtrace-at"),
        "see --logging-format",
    ),
}
"""Flags of earlier kube-proxies, and what to do instead (``cfg.legacy-flags``)."""
