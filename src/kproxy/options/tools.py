"""Options of ``kproxy compare``, ``lab``, ``spec`` and ``trace``: rows of the table.  Pure.

``--help`` shows the rows in this order, before those that these commands share with ``kproxy conformance``.
"""

from __future__ import annotations

from argparse import REMAINDER
from pathlib import Path

from kproxy.options.option import CommandOption, OptionUser, positive_int, switch
from kproxy.options.paths import output_folder

DEFAULT_LAB = "default"
"""Name of a running lab where none is given."""

_COPY = OptionUser.COMPARE | OptionUser.LAB_UP
_LIVE_LAB = OptionUser.LAB_UP | OptionUser.LAB_EXEC | OptionUser.LAB_KUBECTL | OptionUser.LAB_DOWN

_LIVE_CLUSTER = (
    OptionUser.LAB_CLUSTER_UP
    | OptionUser.LAB_CLUSTER_EXEC
    | OptionUser.LAB_CLUSTER_KUBECTL
    | OptionUser.LAB_CLUSTER_KUBECONFIG
    | OptionUser.LAB_CLUSTER_DOWN
)

_PROXIES = (
    CommandOption(
        name="--a",
        users=OptionUser.COMPARE,
        metavar="NAME:MODE",
        default="kube-proxy:iptables",
        help="one proxy",
    ),
    CommandOption(
        name="--b",
        users=OptionUser.COMPARE,
        metavar="NAME:MODE",
        default="kube-proxy:nftables",
        help="the other proxy",
    ),
    CommandOption(name="--binary", users=OptionUser.COMPARE, metavar="PATH", help="the program of both"),
    CommandOption(name="--a-binary", users=OptionUser.COMPARE, metavar="PATH", help="the program of the one"),
    CommandOption(
        name="--b-binary", users=OptionUser.COMPARE, metavar="PATH", help="the program of the other"
    ),
)

_PACKET = (
    CommandOption(
        name="--from",
        users=OptionUser.EXPLAIN,
        metavar="SENDER",
        required=True,
        field="sender",
        help="the sender: `pod/NAME`, `pod/NAMESPACE/NAME`, `host` or `host/NODE` (a process in the node's own network), "
        "`client` or `client/ADDRESS` (from outside), or an address",
    ),
    CommandOption(
        name="--from",
        users=OptionUser.TRACE,
        metavar="SENDER",
        required=True,
        field="sender",
        help="the sender: an address, or `host` (a process in the node's own network); with objects (-f) also `pod/NAME` "
        "and the other forms of [`kproxy spec explain`](spec/explain.md)",
    ),
    CommandOption(
        name="--to",
        users=OptionUser.EXPLAIN,
        metavar="TARGET",
        required=True,
        field="target",
        help="the destination: `svc/NAME:PORT`, `svc/NAMESPACE/NAME:PORT` (the cluster IP; a port's number or name, or nothing "
        "if there is only one), `node/NAME:PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; then `/udp` or `/sctp`",
    ),
    CommandOption(
        name="--to",
        users=OptionUser.TRACE,
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
        users=_COPY | OptionUser.EXPLAIN,
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
        users=OptionUser.TRACE,
        metavar="FILE",
        repeatable=True,
        field="files",
        help="saved rules, addresses or routes, or objects that kubectl printed, recognised by their content; "
        "`-` for standard input. Where no file holds rules, those of this node are read",
    ),
    CommandOption(
        name="--node",
        users=_COPY,
        metavar="NAME",
        repeatable=True,
        field="nodes",
        default_text="those with the most endpoints",
        help="a node that the lab runs; two at most",
    ),
    CommandOption(
        name="--node",
        users=OptionUser.EXPLAIN,
        metavar="NAME",
        default_text="the sender's",
        help="the node that receives the packet; needed only where the sender does not decide it",
    ),
    CommandOption(
        name="--mode",
        users=OptionUser.EXPLAIN,
        choices=("iptables", "ipvs", "nftables", "userspace"),
        default_text="what is lawful in any mode",
        help="the mode whose defaults apply",
    ),
    CommandOption(
        name="--cluster-cidr",
        users=_COPY | OptionUser.EXPLAIN,
        metavar="RANGES",
        help="the proxy's clusterCIDR, with detectLocalMode ClusterCIDR",
    ),
    CommandOption(
        name="--node-port-addresses",
        users=_COPY | OptionUser.EXPLAIN,
        metavar="RANGES",
        help="the proxy's nodePortAddresses: ranges with commas between, or primary",
    ),
    switch(
        name="--masquerade-all",
        users=_COPY | OptionUser.EXPLAIN,
        help="the proxy's masqueradeAll",
    ),
    CommandOption(
        name="--via",
        users=OptionUser.TRACE,
        metavar="IFACE",
        default_text="that of the route to the sender",
        help="the interface that receives the packet",
    ),
    CommandOption(
        name="--node-address",
        users=OptionUser.EXPLAIN | OptionUser.TRACE,
        metavar="ADDRESS",
        repeatable=True,
        help="an address of the node's own that nothing else lists",
    ),
)

_OUTPUTS = (
    CommandOption(
        name="--export",
        users=OptionUser.COMPARE,
        metavar="DIR",
        type=output_folder,
        default=None,
        help="write differences as cases, for `kproxy conformance run --case-file`",
    ),
)

_SPEC_SHOW = (
    CommandOption(
        name="id",
        users=OptionUser.SPEC_SHOW,
        metavar="ID",
        nargs="?",
        default_text="list the topics",
        help="ID of a clause, case, behaviour, reported bug or topic",
    ),
)

_LAB = (
    CommandOption(
        name="--name",
        users=_LIVE_LAB,
        metavar="NAME",
        default=DEFAULT_LAB,
        help="which lab, if there are several",
    ),
    CommandOption(
        name="--name",
        users=_LIVE_CLUSTER,
        metavar="NAME",
        default=DEFAULT_LAB,
        help="which cluster, if there are several",
    ),
    CommandOption(
        name="where",
        users=OptionUser.LAB_CLUSTER_EXEC,
        metavar="WHERE",
        help="node/NAME, `client` or `remote` (outside of the cluster), or `switch` (the control plane's network)",
    ),
    CommandOption(
        name="where",
        users=OptionUser.LAB_EXEC,
        metavar="WHERE",
        help="pod/NAME, pod/NAMESPACE/NAME, node/NAME, client or remote",
    ),
    CommandOption(
        name="arguments",
        users=OptionUser.LAB_EXEC | OptionUser.LAB_CLUSTER_EXEC,
        metavar="-- PROGRAM ARGUMENT",
        nargs=REMAINDER,
        help="the program to run; without one a shell",
    ),
    CommandOption(
        name="arguments",
        users=OptionUser.LAB_KUBECTL | OptionUser.LAB_CLUSTER_KUBECTL,
        metavar="ARGUMENT",
        nargs=REMAINDER,
        help="arguments of kubectl",
    ),
    CommandOption(
        name="--source",
        users=OptionUser.LAB_KERNEL_BUILD,
        metavar="PACKAGE",
        default_text="the newest linux-source-X.Y of apt",
        help="the package of the kernel's source",
    ),
    CommandOption(
        name="--jobs",
        users=OptionUser.LAB_KERNEL_BUILD,
        metavar="N",
        type=positive_int,
        default=0,
        default_text="as many as processors",
        help="number of compilers at once",
    ),
    CommandOption(
        name="--package",
        users=OptionUser.LAB_KERNEL_FETCH,
        metavar="PACKAGE",
        default_text="the one of linux-image-amd64",
        help="the package of the kernel",
    ),
)

_LAB_CLUSTER = (
    CommandOption(
        name="--nodes",
        users=OptionUser.LAB_CLUSTER_UP,
        metavar="N",
        type=positive_int,
        default=3,
        help="number of nodes, 9 at most",
    ),
    CommandOption(
        name="--assets",
        users=OptionUser.LAB_CLUSTER_UP | OptionUser.LAB_CLUSTER_FETCH,
        metavar="DIR",
        type=Path,
        default=None,
        default_text="what `KUBEBUILDER_ASSETS` names",
        help="the folder of Kubernetes' programs, and of images in its folder `images`",
    ),
    CommandOption(
        name="--proxy",
        users=OptionUser.LAB_CLUSTER_UP,
        metavar="kproxy|kube-proxy|none|FILE.toml",
        default="kproxy",
        help="the service proxy: one that is installed as a DaemonSet, or a [subject file](subjects.md), whose programs run on each node",
    ),
    CommandOption(
        name="--mode",
        users=OptionUser.LAB_CLUSTER_UP,
        metavar="MODE",
        default="",
        default_text="`nftables`; of a subject file the first of its modes",
        help="the mode that it runs in",
    ),
    CommandOption(
        name="--version",
        users=OptionUser.LAB_CLUSTER_FETCH,
        metavar="X.Y.Z",
        default="1.36.2",
        help="the version of Kubernetes",
    ),
    CommandOption(
        name="--url",
        users=OptionUser.LAB_CLUSTER_FETCH,
        metavar="URL",
        default="https://dl.k8s.io/release",
        help="the release site, or a mirror of it",
    ),
    CommandOption(
        name="--deploy",
        users=OptionUser.LAB_CLUSTER_UP,
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
        users=OptionUser.COMPLETION,
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
