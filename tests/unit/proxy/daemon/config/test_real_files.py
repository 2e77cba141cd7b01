"""Files and command lines that run kube-proxy elsewhere, accepted as they are, without a word.

ConfigMap and DaemonSet are kubeadm's (`tests.support.kubeadm`; `tests/netns/test_kubeadm.py` runs a daemon by them);
the other command lines have the form that k3s, kops and GCE's static pod give it.
"""

import pytest

from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.flag_table import FLAGS, REMOVED_FLAGS
from kproxy.proxy.daemon.config.flags import parse_flags
from kproxy.proxy.daemon.config.resolve import Resolved, resolve
from tests.support import kubeadm

KUBEADM = kubeadm.FILES["config.conf"].encode()
DAEMON_SET = " ".join(kubeadm.arguments("Node-1"))


def started(line: str, file: bytes | None = None) -> Resolved:
    return resolve(parse_flags(line.split(), FLAGS, REMOVED_FLAGS), file)


def test_kubeadms_config_map_and_daemon_set_are_accepted_unchanged() -> None:
    answer = started(DAEMON_SET, KUBEADM)
    assert answer.warnings == ()
    config, usual = answer.config, Configuration()
    assert config.hostname_override == "node-1"
    assert config.cluster_cidr == "10.244.0.0/16"
    assert config.client_connection.kubeconfig == "/var/lib/kube-proxy/kubeconfig.conf"
    assert (config.mode, config.detect_local_mode) == ("iptables", "ClusterCIDR")
    assert (config.healthz_bind_address, config.metrics_bind_address) == ("0.0.0.0:10256", "127.0.0.1:10249")
    for section in ("conntrack", "detect_local", "iptables", "ipvs", "nftables", "winkernel"):
        assert getattr(config, section) == getattr(usual, section), section


def test_kinds_config_map_shares_the_gates_of_the_whole_cluster() -> None:
    kind = KUBEADM.replace(b"maxPerCore: null", b"maxPerCore: 0").replace(b'mode: ""', b'mode: "nftables"')
    answer = started(DAEMON_SET, kind + b"\nfeatureGates: {KubeletInUserNamespace: true}\n")
    assert answer.warnings == ()
    assert (answer.config.conntrack.max_per_core, answer.config.mode) == (0, "nftables")


COMMANDS = {
    "k3s": "--cluster-cidr=10.42.0.0/16 --conntrack-max-per-core=0 --conntrack-tcp-timeout-close-wait=0s"
    " --conntrack-tcp-timeout-established=0s --healthz-bind-address=127.0.0.1 --hostname-override=n1"
    " --kubeconfig=/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig --proxy-mode=iptables",
    "kops": "--cluster-cidr=100.96.0.0/11 --conntrack-max-per-core=131072 --hostname-override=i-0"
    " --kubeconfig=/var/lib/kube-proxy/kubeconfig --master=https://127.0.0.1 --oom-score-adj=-998 --v=2",
    "gce": "--master=https://10.0.0.1 --kubeconfig=/var/lib/kube-proxy/kubeconfig --cluster-cidr=10.4.0.0/14"
    " --oom-score-adj=-998 --v=2 --iptables-sync-period=1m --iptables-min-sync-period=10s"
    " --ipvs-sync-period=1m --ipvs-min-sync-period=10s --detect-local-mode=NodeCIDR",
}


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_command_lines_of_distributions_are_accepted_unchanged(line: str) -> None:
    answer = started(line)
    assert answer.warnings == ()
    assert answer.config.mode == "iptables"


def test_their_values_arrive() -> None:
    gce, k3s = started(COMMANDS["gce"]).config, started(COMMANDS["k3s"]).config
    assert (gce.iptables.sync_period, gce.iptables.min_sync_period) == (Duration.of(60), Duration.of(10))
    assert (gce.oom_score_adj, gce.detect_local_mode) == (-998, "NodeCIDR")
    assert k3s.healthz_bind_address == "127.0.0.1:10256"
    assert k3s.conntrack.tcp_established_timeout == Duration()
