"""Table of today's kube-proxy flags: the type of each, and the configuration field it sets.

Below `kproxy.proxy.daemon.config.resolve`. Pure data. Fields are named as in the file; ``{paced}`` and
``{masquerade}`` stand for the section of the selected mode (``cfg.mode-sections``, ``cfg.iptables-sync-flags``).

Source: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-proxy/ (1.36)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kproxy.proxy.daemon.config.flags import Flag, FlagType

SYNC_SECTION = "{paced}"
MASQUERADE = "{masquerade}"


class FlagRow(NamedTuple):
    """A flag and its field; without a field it is no part of the configuration."""

    flag: Flag
    field: str = ""


def _row(name: str, kind: FlagType, field: str, about: str) -> FlagRow:
    return FlagRow(Flag(name, kind, about), field)


ACTIONS = (
    FlagRow(
        Flag("config", FlagType.STRING, "the configuration file; most other flags do not count beside it")
    ),
    FlagRow(
        Flag(
            "write-config-to",
            FlagType.STRING,
            "write the configuration that would be run to this file, and exit",
        )
    ),
    FlagRow(Flag("cleanup", FlagType.BOOL, "remove the rules of all modes and both families, and exit")),
    FlagRow(Flag("init-only", FlagType.BOOL, "do what needs full root privileges, and exit")),
    FlagRow(Flag("master", FlagType.STRING, "URL of the API server; beats the kubeconfig's")),
    FlagRow(Flag("version", FlagType.VERSION, "print the version and exit")),
    FlagRow(Flag("help", FlagType.BOOL, "print this and exit", short="h")),
)
"""Flags that select an action or a source of input; they take effect even with ``--config`` (``cfg.file-wins``)."""

LOGGING = (
    FlagRow(
        Flag("v", FlagType.INT, "how much is logged; 4 and up: debugging", short="v"), "logging.verbosity"
    ),
    _row(
        "vmodule", FlagType.PATTERNS, "logging.vmodule", "the same for modules whose name matches, as store=4"
    ),
    _row("logging-format", FlagType.STRING, "logging.format", "text or json"),
    _row(
        "log-flush-frequency",
        FlagType.DURATION,
        "logging.flushFrequency",
        "accepted; every line is written at once",
    ),
    _row(
        "log-text-split-stream",
        FlagType.BOOL,
        "logging.options.text.splitStream",
        "information to standard output",
    ),
    _row(
        "log-text-info-buffer-size",
        FlagType.STRING,
        "logging.options.text.infoBufferSize",
        "accepted; not buffered",
    ),
    _row(
        "log-json-split-stream",
        FlagType.BOOL,
        "logging.options.json.splitStream",
        "information to standard output",
    ),
    _row(
        "log-json-info-buffer-size",
        FlagType.STRING,
        "logging.options.json.infoBufferSize",
        "accepted; not buffered",
    ),
)
"""Flags that override the file's logging section."""

HOSTNAME_OVERRIDE = _row(
    "hostname-override", FlagType.STRING, "hostnameOverride", "this node's name; beats the file's"
)

HEALTHZ_PORT = FlagRow(
    Flag(
        "healthz-port",
        FlagType.INT,
        "port of the health server; 0: none",
        deprecated="use --healthz-bind-address",
    )
)
METRICS_PORT = FlagRow(
    Flag("metrics-port", FlagType.INT, "port of the metrics server", deprecated="use --metrics-bind-address")
)

SETTINGS = (
    _row("feature-gates", FlagType.GATES, "featureGates", "Gate=true or Gate=false, with commas between"),
    _row(
        "kubeconfig",
        FlagType.STRING,
        "clientConnection.kubeconfig",
        "how to reach the API server; default: as a pod",
    ),
    _row(
        "kube-api-content-type",
        FlagType.STRING,
        "clientConnection.contentType",
        "accepted; requests are in JSON",
    ),
    _row("kube-api-burst", FlagType.INT, "clientConnection.burst", "requests at once"),
    _row("kube-api-qps", FlagType.FLOAT, "clientConnection.qps", "requests a second"),
    _row(
        "bind-address",
        FlagType.STRING,
        "bindAddress",
        "this node's IP, in place of the Node object's",
    ),
    _row(
        "healthz-bind-address",
        FlagType.STRING,
        "healthzBindAddress",
        "IP:port of /healthz and /livez",
    ),
    _row("metrics-bind-address", FlagType.STRING, "metricsBindAddress", "IP:port of /metrics"),
    _row(
        "bind-address-hard-fail", FlagType.BOOL, "bindAddressHardFail", "exit when one of them cannot be had"
    ),
    _row("profiling", FlagType.BOOL, "enableProfiling", "/debug/pprof on the metrics server"),
    _row("show-hidden-metrics-for-version", FlagType.STRING, "showHiddenMetricsForVersion", "as 1.35"),
    _row("proxy-mode", FlagType.STRING, "mode", "iptables (default), ipvs, nftables or userspace"),
    _row(
        "masquerade-all",
        FlagType.BOOL,
        f"{MASQUERADE}.masqueradeAll",
        "masquerade all traffic to cluster IPs",
    ),
    _row(
        "iptables-masquerade-bit",
        FlagType.INT,
        "iptables.masqueradeBit",
        "bit of the packet mark, of iptables and ipvs",
    ),
    _row(
        "iptables-localhost-nodeports",
        FlagType.BOOL,
        "iptables.localhostNodePorts",
        "node ports on 127.0.0.1",
    ),
    _row(
        "iptables-sync-period",
        FlagType.DURATION,
        f"{SYNC_SECTION}.syncPeriod",
        "longest time without a look (not ipvs)",
    ),
    _row(
        "iptables-min-sync-period",
        FlagType.DURATION,
        f"{SYNC_SECTION}.minSyncPeriod",
        "least time between syncs (not ipvs)",
    ),
    _row("ipvs-sync-period", FlagType.DURATION, "ipvs.syncPeriod", "longest time without a sync"),
    _row("ipvs-min-sync-period", FlagType.DURATION, "ipvs.minSyncPeriod", "least time between syncs"),
    _row("ipvs-scheduler", FlagType.STRING, "ipvs.scheduler", "how ipvs chooses; default rr"),
    _row("ipvs-exclude-cidrs", FlagType.LIST, "ipvs.excludeCIDRs", "virtual servers there are not touched"),
    _row("ipvs-strict-arp", FlagType.BOOL, "ipvs.strictARP", "arp_ignore 1 and arp_announce 2"),
    _row("ipvs-tcp-timeout", FlagType.DURATION, "ipvs.tcpTimeout", "of idle connections; 0: the kernel's"),
    _row("ipvs-tcpfin-timeout", FlagType.DURATION, "ipvs.tcpFinTimeout", "after a FIN; 0: the kernel's"),
    _row("ipvs-udp-timeout", FlagType.DURATION, "ipvs.udpTimeout", "of UDP packets; 0: the kernel's"),
    _row(
        "nftables-affinity-clients",
        FlagType.INT,
        "nftables.affinityClients",
        "the most clients that affinity remembers",
    ),
    _row(
        "userspace-keep-sources", FlagType.BOOL, "userspace.keepSources", "endpoints see clients' addresses"
    ),
    _row("userspace-workers", FlagType.INT, "userspace.workers", "the relay's processes; 0: by processors"),
    _row(
        "detect-local-mode",
        FlagType.STRING,
        "detectLocalMode",
        "ClusterCIDR (default), NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    ),
    _row(
        "pod-bridge-interface", FlagType.STRING, "detectLocal.bridgeInterface", "pods are behind this bridge"
    ),
    _row(
        "pod-interface-name-prefix",
        FlagType.STRING,
        "detectLocal.interfaceNamePrefix",
        "pods are behind such interfaces",
    ),
    _row("cluster-cidr", FlagType.STRING, "clusterCIDR", "network of the pods, or one of each family"),
    _row(
        "nodeport-addresses", FlagType.LIST, "nodePortAddresses", "CIDRs that accept node ports, or primary"
    ),
    _row("oom-score-adj", FlagType.INT, "oomScoreAdj", "of this process, within [-1000, 1000]"),
    _row("conntrack-max-per-core", FlagType.INT, "conntrack.maxPerCore", "tracked connections; 0: as it is"),
    _row("conntrack-min", FlagType.INT, "conntrack.min", "tracked connections at least"),
    _row(
        "conntrack-tcp-timeout-established",
        FlagType.DURATION,
        "conntrack.tcpEstablishedTimeout",
        "of idle connections; 0: as it is",
    ),
    _row(
        "conntrack-tcp-timeout-close-wait", FlagType.DURATION, "conntrack.tcpCloseWaitTimeout", "0: as it is"
    ),
    _row(
        "conntrack-tcp-be-liberal", FlagType.BOOL, "conntrack.tcpBeLiberal", "packets out of window are valid"
    ),
    _row(
        "conntrack-udp-timeout",
        FlagType.DURATION,
        "conntrack.udpTimeout",
        "of UDP without answer; 0: as it is",
    ),
    _row(
        "conntrack-udp-timeout-stream",
        FlagType.DURATION,
        "conntrack.udpStreamTimeout",
        "of UDP both ways; 0: as it is",
    ),
    _row("config-sync-period", FlagType.DURATION, "configSyncPeriod", "accepted; lists and watches decide"),
)
"""Flags that set a field of the file; ignored with ``--config``."""

IGNORED = (
    FlagRow(Flag("boot-id-file", FlagType.STRING, "accepted; nothing reads it")),
    FlagRow(Flag("machine-id-file", FlagType.STRING, "accepted; nothing reads it")),
)
"""Flags that a library brings into kube-proxy."""

ROWS = (*ACTIONS, HOSTNAME_OVERRIDE, *SETTINGS, *LOGGING, *IGNORED, HEALTHZ_PORT, METRICS_PORT)
FLAGS = tuple(row.flag for row in ROWS)

_TO_STDERR = "logs go to standard error; a container runtime or a service manager keeps them"

REMOVED_FLAGS: Mapping[str, str] = {
    "cleanup-ipvs": "--cleanup alone removes what ipvs mode left too",
    "cleanup-iptables": "use --cleanup",
    "udp-timeout": "userspace mode here keeps idle UDP flows for a time of its own; see --conntrack-udp-timeout for how long idle UDP is tracked",
    "proxy-port-range": "userspace mode here uses ports that the kernel chooses, and no other mode opens ports for Services",
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
