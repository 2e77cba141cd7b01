"""KubeProxyConfiguration as frozen values: every field of v1alpha1, with kube-proxy's defaults.

The start of the daemon: `kproxy.proxy.daemon.config.load` makes one of these from a file, `kproxy.proxy.daemon.config.plan_settings`
turns it into what the plan needs.  Pure; holds no rule about what is valid: `kproxy.proxy.daemon.config.validation` does.

Fields: https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/ (``cfg.fields``);
defaults: ``cfg.defaults``, ``cfg.mode-default``, ``cfg.detectlocal-default``.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from kproxy.model.network import Address, parse_address
from kproxy.proxy.daemon.config.duration import Duration

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"
HEALTHZ_PORT = 10256
METRICS_PORT = 10249
DEFAULT_MODE = "iptables"


class DetectLocal(enum.Enum):
    """Method by which packets of this node's pods are recognised."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of a part of the file; a field that is not given, or null, has its default."""


class ClientConnection(Section, frozen=True):
    """How to reach the API server; without ``kubeconfig`` the pod's own service account is used."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 5.0
    burst: int = 10


class VModule(Section, frozen=True):
    """Verbosity of the source files that match a pattern."""

    file_pattern: str = ""
    verbosity: int = 0


class Logging(Section, frozen=True):
    """Logging, as `kproxy.proxy.daemon.logs` reads it."""

    format: str = "text"
    flush_frequency: int | str = "5s"
    verbosity: int = 0
    vmodule: tuple[VModule, ...] = ()
    options: dict[str, Any] = {}


class IPTables(Section, frozen=True):
    """The ``iptables`` section; ipvs mode reads the masquerade fields of it too (``cfg.mode-sections``)."""

    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: Duration = Duration.of(30)
    min_sync_period: Duration = Duration.of(1)


class IPVS(Section, frozen=True):
    """The ``ipvs`` section."""

    sync_period: Duration = Duration.of(30)
    min_sync_period: Duration = Duration()
    scheduler: str = ""
    exclude_cidrs: tuple[str, ...] = msgspec.field(name="excludeCIDRs", default=())
    strict_arp: bool = msgspec.field(name="strictARP", default=False)
    tcp_timeout: Duration = Duration()
    tcp_fin_timeout: Duration = Duration()
    udp_timeout: Duration = Duration()


class NFTables(Section, frozen=True):
    """The ``nftables`` section; ``affinity_clients``, which is kproxy's own: the most clients that are remembered in a family."""

    masquerade_bit: int = 14
    affinity_clients: int = 131_072
    masquerade_all: bool = False
    sync_period: Duration = Duration.of(30)
    min_sync_period: Duration = Duration.of(1)


class Userspace(Section, frozen=True):
    """The ``userspace`` section, which is kproxy's own: kube-proxy 1.36 has no such mode.

    ``keep_sources``: endpoints see clients' addresses where other modes preserve them (IP_TRANSPARENT).  ``workers``: of the relay; 0: those that
    run, or one for each processor, at most 8.
    """

    keep_sources: bool = True
    workers: int = 0


class Winkernel(Section, frozen=True):
    """The ``winkernel`` section; read so that a shared file is no error, and otherwise unused."""

    network_name: str = ""
    source_vip: str = ""
    enable_dsr: bool = msgspec.field(name="enableDSR", default=False)
    root_hns_endpoint_name: str = ""
    forward_health_check_vip: bool = False


class DetectLocalSection(Section, frozen=True):
    """The ``detectLocal`` section: what the interface modes of detection need."""

    bridge_interface: str = ""
    interface_name_prefix: str = ""


class ConntrackSection(Section, frozen=True):
    """The ``conntrack`` section: kernel settings; zero leaves the kernel's own."""

    max_per_core: int = 32_768
    min: int = 131_072
    tcp_established_timeout: Duration = Duration.of(24 * 3_600)
    tcp_close_wait_timeout: Duration = Duration.of(3_600)
    tcp_be_liberal: bool = False
    udp_timeout: Duration = Duration()
    udp_stream_timeout: Duration = Duration()


class Configuration(Section, frozen=True):
    """A whole KubeProxyConfiguration; names and meanings are the file's."""

    feature_gates: dict[str, bool] = {}
    client_connection: ClientConnection = ClientConnection()
    logging: Logging = Logging()
    hostname_override: str = ""
    bind_address: str = "0.0.0.0"  # noqa: S104 - the documented default
    healthz_bind_address: str = ""
    metrics_bind_address: str = ""
    bind_address_hard_fail: bool = False
    enable_profiling: bool = False
    show_hidden_metrics_for_version: str = ""
    mode: str = DEFAULT_MODE
    iptables: IPTables = IPTables()
    ipvs: IPVS = IPVS()
    nftables: NFTables = NFTables()
    userspace: Userspace = Userspace()
    winkernel: Winkernel = Winkernel()
    detect_local_mode: str = DetectLocal.CLUSTER_CIDR.value
    detect_local: DetectLocalSection = DetectLocalSection()
    cluster_cidr: str = msgspec.field(name="clusterCIDR", default="")
    node_port_addresses: tuple[str, ...] = ()
    oom_score_adj: int = -999
    conntrack: ConntrackSection = ConntrackSection()
    config_sync_period: Duration = Duration.of(15 * 60)
    port_range: str = ""
    windows_run_as_service: bool = False

    @property
    def sync_section(self) -> IPTables | IPVS | NFTables:
        """The section of the selected mode, which holds the sync periods (``cfg.mode-sections``).

        A mode without a section of its own, and an unknown one, has that of the default mode.
        """
        sections: dict[str, IPTables | IPVS | NFTables] = {"ipvs": self.ipvs, "nftables": self.nftables}
        return sections.get(self.mode, self.iptables)

    @property
    def masquerade_section(self) -> IPTables | NFTables:
        """The section that holds the masquerade fields of the selected mode."""
        section = self.sync_section
        return self.iptables if isinstance(section, IPVS) else section


def with_addresses(config: Configuration) -> Configuration:
    """The healthz and metrics addresses filled in from ``bindAddress``, ports appended (``cfg.addr-port``)."""
    address = parse_address(config.bind_address)
    six = address is not None and address.version == 6
    return msgspec.structs.replace(
        config,
        healthz_bind_address=append_port(
            config.healthz_bind_address or ("::" if six else "0.0.0.0"),  # noqa: S104 - as documented
            HEALTHZ_PORT,
        ),
        metrics_bind_address=append_port(
            config.metrics_bind_address or ("::1" if six else "127.0.0.1"), METRICS_PORT
        ),
    )


def append_port(text: str, port: int) -> str:
    """``host:port`` of a bare IP; anything else stays as it is."""
    bare = text.removeprefix("[").removesuffix("]")
    match parse_address(bare):
        case None:
            return text
        case address:
            return f"[{bare}]:{port}" if address.version == 6 else f"{bare}:{port}"


def split_host_port(text: str) -> tuple[Address, int] | None:
    """The IP and the port (1..65535) of ``192.0.2.1:80`` or ``[2001:db8::1]:80``, or None."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    address = parse_address(host[1:-1] if bracketed else host)
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not colon or address is None or not 1 <= number <= 65_535 or (":" in host) != bracketed:
        return None
    return address, number
