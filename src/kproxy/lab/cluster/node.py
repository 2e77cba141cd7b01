"""A node's files and the script of its first process.  Pure.

The script runs as process 1 of the node's namespaces, with the paths of `NodeFiles` as its environment: it makes the mounts
that `kproxy.lab.cluster` describes, starts containerd, imports the images, waits until the node's object exists (the file
``start``), and keeps kubelet running as systemd would. It reaps whatever is orphaned in the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.cluster.layout import ClusterLayout, dns_address
from kproxy.model.network import Family

PAUSE_IMAGE = "kproxy.lab/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"

KERNEL_TUNABLES = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Sysctls of the whole machine that a kubelet sets (pkg/kubelet/cm, ``setupKernelTunables``)."""

SCRIPT = r"""
set -e
hostname "$NODE"
for place in $(awk '{ for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "nsfs") print $5 }' /proc/self/mountinfo); do
    umount -l "$place"
done
cd "$ROOT"
mkdir -p bin lib log cni groups tunables
for name in kubelet containerd ctr runc nsenter; do
    touch "bin/$name"
    mount --bind "$(readlink -f "$PROGRAMS/$name")" "bin/$name"
done
mount --bind "$CNI" cni
for name in $TUNABLES; do
    file="tunables/$(echo "$name" | tr / .)"
    cat "/proc/sys/$name" > "$file"
    mount --bind "$file" "/proc/sys/$name"
done
mount --rbind /sys/fs/cgroup groups
mount -t sysfs sysfs /sys
mount --rbind groups /sys/fs/cgroup
umount -l groups
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/netns
mkdir -p lib/kubelet lib/containerd lib/cni log/pods log/containers
mount --bind lib /var/lib
mount --bind log /var/log
mount --bind /var/lib/kubelet /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
export PATH="$ROOT/bin:$PATH"
keep_running() {
    while :; do
        "$@" >> "$ROOT/$(basename "$1").log" 2>&1 || true
        sleep 1
    done
}
keep_running "$ROOT/bin/containerd" --config "$ROOT/containerd.toml" &
until ctr version > /dev/null 2>&1; do sleep 0.1; done
for image in "$IMAGES"/*.tar; do
    ctr -n k8s.io images import "$image" >> images.log 2>&1 || {
        echo "cannot import $image: $(tail -n 1 images.log)"
        exit 1
    }
done
touch imported
until [ -e start ]; do sleep 0.1; done
keep_running "$ROOT/bin/kubelet" --config="$ROOT/kubelet.json" --kubeconfig="$ROOT/kubeconfig" \
    --hostname-override="$NODE" --node-ip="$ADDRESSES" --cert-dir="$ROOT/certificates" \
    --node-labels="topology.kubernetes.io/zone=$ZONE" &
while :; do wait; sleep 1; done
"""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Folder of a node, and what its files say."""

    layout: ClusterLayout
    node: str
    folder: Path
    group: str
    """Path of its control group, below each hierarchy's root."""

    def environment(self, programs: Path, cni: Path, images: Path) -> dict[str, str]:
        """Environment of the script; ``programs``: a folder with links to the node's programs."""
        addresses = (str(self.layout.node_address(self.node, family)) for family in Family)
        return {
            "NODE": self.node,
            "ROOT": str(self.folder),
            "PROGRAMS": str(programs),
            "CNI": str(cni),
            "IMAGES": str(images),
            "TUNABLES": " ".join(KERNEL_TUNABLES),
            "ADDRESSES": ",".join(addresses),
            "ZONE": self.layout.zone(self.node),
        }

    def write(self, authority: Path) -> None:
        """Write all configuration; ``authority``: certificate of the cluster's authority."""
        self.folder.mkdir(parents=True)
        (self.folder / "containerd.toml").write_text(self.containerd_configuration())
        kubelet = self.kubelet_configuration(authority)
        (self.folder / "kubelet.json").write_text(json.dumps(kubelet, indent=1))
        (self.folder / "resolv.conf").write_text(f"nameserver {dns_address()}\n")
        network = self.folder / "net.d"
        network.mkdir()
        (network / "10-kproxy-lab.conflist").write_text(json.dumps(self.cni_configuration(), indent=1))

    def containerd_configuration(self) -> str:
        """Configuration of containerd 1.6 or later, without what needs CAP_SYS_RESOURCE or AppArmor.

        https://github.com/containerd/containerd/blob/release/1.6/docs/cri/config.md
        """
        return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = "{self.folder}/bin/runc"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{self.folder}/cni"
conf_dir = "{self.folder}/net.d"
"""

    def kubelet_configuration(self, authority: Path) -> Mapping[str, object]:
        """KubeletConfiguration (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/)."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "clusterDNS": [str(dns_address())],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "failCgroupV1": False,
            "protectKernelDefaults": False,
            "oomScoreAdj": 0,
            "maxOpenFiles": 20000,
            "evictionHard": {"memory.available": "20Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": False,
            "shutdownGracePeriod": "0s",
        }

    def cni_configuration(self) -> Mapping[str, object]:
        """A veth to the node for each pod, addresses of both families from the node's ranges, and host ports."""
        ranges = [[{"subnet": str(self.layout.pod_range(self.node, family))}] for family in Family]
        ipam = {
            "type": "host-local",
            "dataDir": "/var/lib/cni/networks",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        }
        return {
            "cniVersion": "1.0.0",
            "name": "kproxy-lab",
            "plugins": [
                {"type": "ptp", "ipMasq": False, "ipam": ipam},
                {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
            ],
        }
