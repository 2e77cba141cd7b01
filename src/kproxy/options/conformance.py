"""Options of ``kproxy conformance``, of pytest with the catalogue, and inputs of the Action: rows of the table.  Pure.

``--help`` shows the rows in this order.  Where an option means something else in another command it has another row.
"""

from __future__ import annotations

from pathlib import Path

from kproxy.options.option import CommandOption, OptionUser, positive_int, positive_seconds, switch
from kproxy.options.paths import output_folder

_JUDGE = OptionUser.RUN | OptionUser.FUZZ
_COPY = OptionUser.COMPARE | OptionUser.LAB_UP
_LABS = OptionUser.LAB_UP | OptionUser.LAB_CLUSTER_UP
_RESULTS = OptionUser.RUN | OptionUser.CLUSTER

_SUBJECT = (
    CommandOption(
        name="--proxy",
        users=_JUDGE | OptionUser.PYTEST | OptionUser.SIMULATE,
        metavar="NAME|FILE.toml",
        default="kproxy",
        help="the subject: `kproxy`, `kube-proxy`, `kube-router`, or the path of [a subject file](subjects.md)",
    ),
    CommandOption(
        name="--proxy",
        users=OptionUser.ACTION,
        required=True,
        help="the subject: `kproxy`, `kube-proxy`, `kube-router`, or the path of [a subject file](subjects.md)",
    ),
    CommandOption(
        name="--proxy",
        users=OptionUser.CLUSTER,
        metavar="NAME|FILE.toml",
        default="kproxy",
        help="the subject whose features and known deviations count; it is not started",
    ),
    CommandOption(
        name="--proxy",
        users=OptionUser.LAB_UP,
        metavar="NAME[:MODE]|FILE.toml[:MODE]",
        default="kproxy",
        help="the proxy of the nodes, in its first mode unless one is given",
    ),
    CommandOption(
        name="--binary",
        users=_JUDGE | OptionUser.PYTEST | OptionUser.ACTION | OptionUser.SIMULATE | _LABS,
        metavar="PATH",
        help="the subject's program",
    ),
    CommandOption(
        name="--mode",
        users=OptionUser.RUN | OptionUser.PYTEST | OptionUser.ACTION | OptionUser.SIMULATE,
        metavar="MODE",
        help="one of the subject's modes; without it, [every mode](conformance.md#every-mode), each in a run of its own",
    ),
    CommandOption(
        name="--mode",
        users=OptionUser.FUZZ,
        metavar="MODE",
        default_text="`iptables`",
        help="one of the subject's modes",
    ),
    CommandOption(
        name="--mode",
        users=OptionUser.CLUSTER,
        metavar="MODE",
        required=True,
        help="the mode that the cluster's proxy runs in",
    ),
    CommandOption(name="--mode", users=OptionUser.LAB_UP, metavar="MODE", help="one of the proxy's modes"),
    CommandOption(
        name="--agent-image",
        users=OptionUser.CLUSTER,
        metavar="IMAGE",
        required=True,
        field="image",
        help="[kproxy's image](kind.md#the-image), for the agents, where the nodes can pull it",
    ),
    CommandOption(
        name="--kubeconfig",
        users=OptionUser.CLUSTER,
        metavar="FILE",
        default_text="kubectl's",
        help="the kubeconfig of the cluster",
    ),
    CommandOption(
        name="--context",
        users=OptionUser.CLUSTER,
        metavar="NAME",
        default_text="its current context",
        help="a context of the kubeconfig",
    ),
    *(
        CommandOption(
            name=f"--{client}",
            users=OptionUser.CLUSTER,
            metavar="URL",
            help=f"an agent [outside of the cluster](kind.md#clients-outside), instead of the lab's {client}",
        )
        for client in ("client", "remote")
    ),
    CommandOption(
        name="--configure",
        users=OptionUser.CLUSTER,
        metavar="NAMESPACE/NAME",
        help="the proxy's DaemonSet, whose ConfigMap of the same name (key `config.conf`) is changed for the cases that need it, and put back",
    ),
    switch(
        name="--allow-production",
        users=OptionUser.CLUSTER,
        old_name="--really",
        help="run although the cluster looks like one in production",
    ),
)

_ENVIRONMENT = (
    CommandOption(
        name="--testbed",
        users=_JUDGE | OptionUser.PYTEST,
        choices=("netns", "simulator"),
        default="netns",
        help="`netns`: packets in network namespaces; `simulator`: kproxy's own rules evaluated in memory, "
        "without root or kernel, for most of the catalogue",
    ),
    *(
        CommandOption(
            name="--kernel",
            users=users,
            choices=("auto", *kernels),
            default="auto",
            help="[kernel of the lab](lab.md); `auto` is the first that can run it, `kproxy lab doctor` lists them",
        )
        for users, kernels in (
            (_JUDGE | OptionUser.PYTEST, ("host", "rootless", "uml", "vm")),
            (OptionUser.COMPARE, ("host", "rootless", "uml")),
            (OptionUser.LAB_UP, ("host", "rootless")),
        )
    ),
    CommandOption(
        name="--time",
        users=_JUDGE,
        choices=("real", "virtual"),
        default="real",
        help="`virtual`: idle time is skipped, and slow cases are included ([on User-Mode Linux](lab.md#virtual-time))",
    ),
    CommandOption(
        name="--uml-kernel",
        users=_JUDGE | OptionUser.LAB_DOCTOR | OptionUser.SIMULATE,
        metavar="PATH",
        default_text="`$KPROXY_UML_KERNEL`, else the one built, else the one packaged",
        help="a User-Mode Linux kernel",
    ),
    CommandOption(
        name="--memory",
        users=_JUDGE,
        metavar="MIB",
        type=positive_int,
        default=1024,
        help="memory of a guest",
    ),
    CommandOption(
        name="--guests",
        users=OptionUser.RUN,
        metavar="N",
        type=positive_int,
        default=0,
        default_text="one for each processor, with 40 cases or more for each",
        help="number of User-Mode Linux guests that share the cases",
    ),
    CommandOption(
        name="--iptables",
        users=_JUDGE | OptionUser.PYTEST | OptionUser.SIMULATE,
        choices=("auto", "nft", "legacy"),
        default="auto",
        default_text="both without --mode, else nft where the kernel has it",
        help="the variant of iptables that the subject finds",
    ),
    CommandOption(
        name="--iptables",
        users=_COPY,
        choices=("auto", "nft", "legacy"),
        default="auto",
        default_text="nft where the kernel has it",
        help="the variant of iptables that the proxies find",
    ),
    CommandOption(
        name="--apiserver",
        users=_JUDGE,
        choices=("lab", "kube"),
        default="lab",
        help="API server of the subject: the lab's own, or [a real one](lab.md#a-real-api-server): "
        "etcd and kube-apiserver of `$KUBEBUILDER_ASSETS`",
    ),
    CommandOption(
        name="--parallel",
        users=_JUDGE,
        metavar="N",
        type=positive_int,
        default=4,
        help="number of labs at once; each profile, that is each configuration of the proxy, has a lab of its own",
    ),
    CommandOption(
        name="--sync-timeout",
        users=_JUDGE | OptionUser.CLUSTER | OptionUser.PYTEST | _COPY,
        metavar="SECONDS",
        type=positive_seconds,
        default=0.0,
        default_text="60; 240 on an emulated kernel",
        old_name="--patience",
        help="how long a proxy may take to apply changes; after that it has failed",
    ),
)

_CASES = (
    CommandOption(
        name="--case",
        users=_RESULTS | OptionUser.LIST,
        metavar="GLOB",
        repeatable=True,
        field="globs",
        help="only cases that match, or those of a [topic](spec/topics/README.md); each glob must match one; "
        "`kproxy conformance list` lists all",
    ),
    CommandOption(
        name="--skip",
        users=_RESULTS | OptionUser.LIST,
        metavar="GLOB",
        repeatable=True,
        field="skips",
        help="leave out cases that match, and each glob must match one; results of such a run are not complete",
    ),
    switch(
        name="--last-failed",
        users=OptionUser.RUN,
        help="only the cases that failed or broke in the last run with this folder of `--evidence`",
    ),
    CommandOption(
        name="--maxfail",
        users=OptionUser.RUN,
        metavar="N",
        type=positive_int,
        default=0,
        default_text="all cases are run",
        help="start no further lab when N cases have failed; cases of one lab run together, and are finished",
    ),
    switch(
        name="--exitfirst",
        short="-x",
        users=OptionUser.RUN,
        field="exit_first",
        help="the same as `--maxfail 1`",
    ),
    CommandOption(
        name="--case",
        users=OptionUser.ACTION,
        help="globs of cases, separated by blanks; without it the whole catalogue",
    ),
    CommandOption(
        name="--regression",
        users=OptionUser.LIST,
        metavar="NAME",
        repeatable=True,
        help="only cases that guard a [reported bug](spec/regressions.md): "
        "an issue (`139628`, `cilium#11746`), a CVE or an ID",
    ),
    CommandOption(
        name="--case-file",
        users=OptionUser.RUN,
        metavar="FILE",
        repeatable=True,
        field="case_files",
        help="a case from a file, as `kproxy compare --export` and `kproxy conformance fuzz` write it; "
        "then only cases of files are run",
    ),
    switch(
        name="--slow",
        users=_RESULTS | OptionUser.PYTEST,
        help="include cases that must wait for real time to pass; a slow case whose whole ID is given is run anyway",
    ),
    CommandOption(
        name="--shuffle",
        users=OptionUser.RUN,
        metavar="SEED",
        type=int,
        default=None,
        help="run the cases in another order; results must not depend on it",
    ),
    CommandOption(
        name="--xfails",
        users=_RESULTS | OptionUser.PYTEST | OptionUser.ACTION,
        metavar="FILE",
        help="a file of [expected failures](subjects.md#expected-failures), one a line: GLOB [MODE]  # REASON; "
        "a case in it that passes counts as failed",
    ),
    CommandOption(
        name="case",
        users=OptionUser.SHOW,
        metavar="ID",
        help="ID of a case, as `kproxy conformance list` prints it",
    ),
)

_FUZZ = (
    CommandOption(
        name="--worlds",
        users=OptionUser.FUZZ,
        metavar="N",
        type=positive_int,
        default=200,
        help="number of worlds to generate",
    ),
    CommandOption(
        name="--seed",
        users=OptionUser.FUZZ,
        metavar="N",
        type=int,
        default=None,
        default_text="another one each time; it is printed",
        help="seed of the worlds: a number always gives the same ones",
    ),
    CommandOption(
        name="--world",
        users=OptionUser.FUZZ,
        metavar="N",
        type=int,
        repeatable=True,
        field="only",
        help="only the world of this number",
    ),
    CommandOption(
        name="--against",
        users=OptionUser.FUZZ,
        metavar="NAME|FILE.toml",
        help="a second subject: print every packet whose outcome differs, lawful or not; "
        "exit status 1 if one was unlawful",
    ),
    CommandOption(
        name="--against-binary", users=OptionUser.FUZZ, metavar="PATH", help="the second subject's program"
    ),
    CommandOption(
        name="--against-mode",
        users=OptionUser.FUZZ,
        metavar="MODE",
        default_text="that of the first",
        help="the second subject's mode",
    ),
    CommandOption(
        name="--out",
        users=OptionUser.FUZZ,
        metavar="DIR",
        type=output_folder,
        default=Path("worlds"),
        field="directory",
        help="folder for failing worlds, as Python modules",
    ),
    switch(
        name="--no-shrink",
        users=OptionUser.FUZZ,
        help="keep failing worlds as they are, instead of making them small",
    ),
)

_OUTPUTS = (
    CommandOption(
        name="--json",
        users=_RESULTS,
        metavar="FILE",
        help="write results as [JSON](reports.md#json); `-` for standard output, messages then go to standard error",
    ),
    CommandOption(
        name="--yaml",
        users=_RESULTS,
        metavar="FILE",
        help="write the same as YAML; `-` for standard output",
    ),
    *(
        CommandOption(
            name=f"--{form}",
            users=_RESULTS | OptionUser.REPORT,
            metavar="FILE",
            help=f"write results as {meaning}; `-` for standard output",
        )
        for form, meaning in (
            ("junit", "[JUnit XML](reports.md#junit-xml), for CI systems"),
            ("markdown", 'Markdown, for the summary of a CI job (`"$GITHUB_STEP_SUMMARY"`)'),
            ("html", "[one HTML file](reports.md#in-a-browser) that needs no network"),
        )
    ),
    CommandOption(
        name="--evidence",
        users=_RESULTS | OptionUser.PYTEST,
        metavar="DIR",
        type=output_folder,
        default=Path("evidence"),
        help="folder for the [evidence](conformance.md#evidence) of failures",
    ),
    CommandOption(
        name="--results",
        users=OptionUser.ACTION,
        default="kproxy-results",
        help="the folder for results.json, results.xml (JUnit), results.html and evidence",
    ),
    switch(
        name="--dry-run",
        users=OptionUser.RUN,
        old_name="--dryrun",
        help="run nothing; print which cases would run on which kernel, in which order, and why not the others",
    ),
    switch(
        name="--skip-missing-kernels",
        users=OptionUser.RUN,
        old_name="--where-possible",
        help="without --mode: a mode that no kernel here can run is left out and does not change the exit status",
    ),
    switch(
        name="--print-missing-packages",
        users=OptionUser.RUN,
        old_name="--lacking-packages",
        help="run nothing; print the Debian packages that provide a kernel for modes that have none here",
    ),
    CommandOption(
        name="files",
        users=OptionUser.REPORT,
        metavar="FILE.json",
        nargs="*",
        help="results that `kproxy conformance run --json` wrote",
    ),
    CommandOption(
        name="file",
        users=OptionUser.VERIFY,
        metavar="FILE.json",
        help="results that `kproxy conformance run --json` wrote",
    ),
    switch(
        name="--schema",
        users=OptionUser.REPORT,
        help="print the JSON Schema of results, and nothing else",
    ),
)

CONFORMANCE_GROUPS = {
    "subject": _SUBJECT,
    "cases": _CASES,
    "environment": _ENVIRONMENT,
    "generated worlds": _FUZZ,
    "results": _OUTPUTS,
}
"""All rows about judging proxies, by the heading that ``--help`` gives them; some are also of ``kproxy compare`` and ``kproxy lab``."""
