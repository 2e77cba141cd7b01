"""Options of ``kproxy compare``, ``lab``, ``spec`` and ``trace``: rows of the table.  Pure.

``--help`` shows the rows in this order, before those that these commands share with ``kproxy conformance``.
"""

from __future__ import annotations

from argparse import REMAINDER
from pathlib import Path

from kproxy.options.option import CommandOption, Front, positive_int, switch
from kproxy.options.paths import output_folder

DEFAULT_LAB = "default"
"""Name of a running lab where none is given."""

_COPY = Front.COMPARE | Front.LAB_UP
_LIVE_LAB = Front.LAB_UP | Front.LAB_EXEC | Front.LAB_KUBECTL | Front.LAB_DOWN

_LIVE_CLUSTER = (
    Front.LAB_CLUSTER_UP
    | Front.LAB_CLUSTER_EXEC
    | Front.LAB_CLUSTER_KUBECTL
    | Front.LAB_CLUSTER_KUBECONFIG
    | Front.LAB_CLUSTER_DOWN
)

_PROXIES = (
    CommandOption(
        name="--a",
        fronts=Front.COMPARE,
        metavar="NAME:MODE",
        default="kube-proxy:iptables",
        help="one proxy",
    ),
    CommandOption(
        name="--b",
        fronts=Front.COMPARE,
        metavar="NAME:MODE",
        default="kube-proxy:nftables",
        help="the other proxy",
    ),
    CommandOption(name="--binary", fronts=Front.COMPARE, metavar="PATH", help="the program of both"),
    CommandOption(name="--a-binary", fronts=Front.COMPARE, metavar="PATH", help="the program of the one"),
    CommandOption(name="--b-binary", fronts=Front.COMPARE, metavar="PATH", help="the program of the other"),
)

_PACKET = (
    CommandOption(
        name="--from",
        fronts=Front.EXPLAIN,
        metavar="SENDER",
        required=True,
        field="sender",
        help="the sender: `pod/NAME`, `pod/NAMESPACE/NAME`, `host` or `host/NODE` (a process in the node's own network), "
        "`client` or `client/ADDRESS` (from outside), or an address",
    ),
    CommandOption(
        name="--from",
        fronts=Front.TRACE,
        metavar="SENDER",
        required=True,
        field="sender",
        help="the sender: an address, or `host` (a process in the node's own network); with objects (-f) also `pod/NAME` "
        "and the other forms of [`kproxy spec explain`](spec/explain.md)",
    ),
    CommandOption(
        name="--to",
        fronts=Front.EXPLAIN,
        metavar="TARGET",
        required=True,
        field="target",
        help="the destination: `svc/NAME:PORT`, `svc/NAMESPACE/NAME:PORT` (the cluster IP; a port's number or name, or nothing "
        "if there is only one), `node/NAME:PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; then `/udp` or `/sctp`",
    ),
    CommandOption(
        name="--to",
        fronts=Front.TRACE,
        metavar="TARGET",
        required=True,
        field="target",
        help="the destination: `ADDRESS:PORT` or `[ADDRESS]:PORT`, then `/udp` or `/sctp`; with objects (-f) also `svc/NAME:PORT` "
        "and the other forms of [`kproxy spec explain`](spec/explain.md)",
    ),
)

_CLUSTER = (
    CommandOption(
        name="--file",
        short="-f",
        fronts=_COPY | Front.EXPLAIN,
        metavar="FILE",
        required=True,
        repeatable=True,
        field="files",
        help="objects that `kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml` printed: YAML or JSON, Lists or "
        "single objects; `-` for standard input",
    ),
    CommandOption(
        name="--file",
        short="-f",
        fronts=Front.TRACE,
        metavar="FILE",
        repeatable=True,
        field="files",
        help="saved rules, addresses or routes, or objects that kubectl printed, recognised by their content; "
        "`-` for standard input. Where no file holds rules, those of this node are read",
    ),
    CommandOption(
        name="--node",
        fronts=_COPY,
        metavar="NAME",
        repeatable=True,
        field="nodes",
        default_text="those with the most endpoints",
        help="a node that the lab runs; two at most",
    ),
    CommandOption(
        name="--node",
        fronts=Front.EXPLAIN,
        metavar="NAME",
        default_text="the sender's",
        help="the node that receives the packet; needed only where the sender does not decide it",
    ),
    CommandOption(
        name="--mode",
        fronts=Front.EXPLAIN,
        choices=("iptables", "ipvs", "nftables", "userspace"),
        default_text="what is lawful in any mode",
        help="the mode whose defaults apply",
    ),
    CommandOption(
        name="--cluster-cidr",
        fronts=_COPY | Front.EXPLAIN,
        metavar="RANGES",
        help="the proxy's clusterCIDR, with detectLocalMode ClusterCIDR",
    ),
    CommandOption(
        name="--node-port-addresses",
        fronts=_COPY | Front.EXPLAIN,
        metavar="RANGES",
        help="the proxy's nodePortAddresses: ranges with commas between, or primary",
    ),
    switch(
        name="--masquerade-all",
        fronts=_COPY | Front.EXPLAIN,
        help="the proxy's masqueradeAll",
    ),
    CommandOption(
        name="--via",
        fronts=Front.TRACE,
        metavar="IFACE",
        default_text="that of the route to the sender",
        help="the interface that receives the packet",
    ),
    CommandOption(
        name="--node-address",
        fronts=Front.EXPLAIN | Front.TRACE,
        metavar="ADDRESS",
        repeatable=True,
        help="an address of the node's own that nothing else lists",
    ),
)

_OUTPUTS = (
    CommandOption(
        name="--export",
        fronts=Front.COMPARE,
        metavar="DIR",
        type=output_folder,
        default=None,
        help="write differences as cases, for `kproxy conformance run --case-file`",
    ),
)

_SPEC_SHOW = (
    CommandOption(
        name="id",
        fronts=Front.SPEC_SHOW,
        metavar="ID",
        nargs="?",
        default_text="list the topics",
        help="ID of a clause, case, behaviour, reported bug or topic",
    ),
)

_LAB = (
    CommandOption(
        name="--name",
        fronts=_LIVE_LAB,
        metavar="NAME",
        default=DEFAULT_LAB,
        help="which lab, if there are several",
    ),
    CommandOption(
        name="--name",
        fronts=_LIVE_CLUSTER,
        metavar="NAME",
        default=DEFAULT_LAB,
        help="which cluster, if there are several",
    ),
    CommandOption(
        name="where",
        fronts=Front.LAB_CLUSTER_EXEC,
        metavar="WHERE",
        help="node/NAME, `client` or `remote` (outside of the cluster), or `switch` (the control plane's network)",
    ),
    CommandOption(
        name="where",
        fronts=Front.LAB_EXEC,
        metavar="WHERE",
        help="pod/NAME, pod/NAMESPACE/NAME, node/NAME, client or remote",
    ),
    CommandOption(
        name="arguments",
        fronts=Front.LAB_EXEC | Front.LAB_CLUSTER_EXEC,
        metavar="-- PROGRAM ARGUMENT",
        nargs=REMAINDER,
        help="the program to run; without one a shell",
    ),
    CommandOption(
        name="arguments",
        fronts=Front.LAB_KUBECTL | Front.LAB_CLUSTER_KUBECTL,
        metavar="ARGUMENT",
        nargs=REMAINDER,
        help="arguments of kubectl",
    ),
    CommandOption(
        name="--source",
        fronts=Front.LAB_KERNEL_BUILD,
        metavar="PACKAGE",
        default_text="the newest linux-source-X.Y of apt",
        help="the package of the kernel's source",
    ),
    CommandOption(
        name="--jobs",
        fronts=Front.LAB_KERNEL_BUILD,
        metavar="N",
        type=positive_int,
        default=0,
        default_text="as many as processors",
        help="number of compilers at once",
    ),
    CommandOption(
        name="--package",
        fronts=Front.LAB_KERNEL_FETCH,
        metavar="PACKAGE",
        default_text="the one of linux-image-amd64",
        help="the package of the kernel",
    ),
)

_LAB_CLUSTER = (
    CommandOption(
        name="--nodes",
        fronts=Front.LAB_CLUSTER_UP,
        metavar="N",
        type=positive_int,
        default=3,
        help="number of nodes, 9 at most",
    ),
    CommandOption(
        name="--assets",
        fronts=Front.LAB_CLUSTER_UP | Front.LAB_CLUSTER_FETCH,
        metavar="DIR",
        type=Path,
        default=None,
        default_text="what `KUBEBUILDER_ASSETS` names",
        help="the folder of Kubernetes' programs, and of images in its folder `images`",
    ),
    CommandOption(
        name="--proxy",
        fronts=Front.LAB_CLUSTER_UP,
        metavar="kproxy|kube-proxy|none|FILE.toml",
        default="kproxy",
        help="the service proxy: one that is installed as a DaemonSet, or a [subject file](subjects.md), whose programs run on each node",
    ),
    CommandOption(
        name="--mode",
        fronts=Front.LAB_CLUSTER_UP,
        metavar="MODE",
        default="",
        default_text="`nftables`; of a subject file the first of its modes",
        help="the mode that it runs in",
    ),
    CommandOption(
        name="--version",
        fronts=Front.LAB_CLUSTER_FETCH,
        metavar="X.Y.Z",
        default="1.36.2",
        help="the version of Kubernetes",
    ),
    CommandOption(
        name="--url",
        fronts=Front.LAB_CLUSTER_FETCH,
        metavar="URL",
        default="https://dl.k8s.io/release",
        help="the release site, or a mirror of it",
    ),
    CommandOption(
        name="--deploy",
        fronts=Front.LAB_CLUSTER_UP,
        metavar="DIR",
        type=Path,
        default=None,
        default_text="`deploy` of the clone",
        help="the folder of kproxy's manifests",
    ),
)

_COMPLETION = (
    CommandOption(
        name="shell",
        fronts=Front.COMPLETION,
        metavar="SHELL",
        choices=("bash", "zsh", "tcsh"),
        help="`bash`, `zsh` or `tcsh`",
    ),
)

TOOL_GROUPS = {
    "arguments": (*_SPEC_SHOW, *_COMPLETION),
    "proxies": _PROXIES,
    "packet": _PACKET,
    "cluster": _CLUSTER,
    "lab": (*_LAB, *_LAB_CLUSTER),
    "differences": _OUTPUTS,
}
"""All rows about clusters, their copies in a lab, and single packets, by the heading that ``--help`` gives them."""
