"""The table of commands: what each is for, examples, exit statuses.  Pure.

``--help``, the pages of ``man`` and the completion of shells come from this table and the table of options.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.options.option import OptionUser

JUDGED = ((0, "all lawful"), (1, "a case failed"), (2, "it could not be run: the message says what to do"))
PRINTED = ((0, "printed"), (2, "it could not be printed: the message says why"))
DONE = ((0, "done"), (1, "failed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHelp:
    """A command: ``name`` after ``kproxy``, its line in a list of commands, and what its ``--help`` adds to the options.

    ``examples``: command lines, each with its meaning; ``statuses``: exit statuses with theirs.
    """

    name: str
    user: OptionUser
    about: str
    description: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    statuses: tuple[tuple[int, str], ...] = PRINTED

    @property
    def epilog(self) -> str:
        """Examples and exit statuses, as text for a terminal."""
        parts = [f"  $ {line}\n      {meaning}\n" for line, meaning in self.examples]
        examples = f"examples:\n{''.join(parts)}\n" if parts else ""
        return examples + "exit status: " + "; ".join(f"{status} {text}" for status, text in self.statuses)


_CONFORMANCE = (
    CommandHelp(
        name="conformance run",
        user=OptionUser.RUN,
        about="run the catalogue",
        description="Judges a service proxy by real packets, in network namespaces of this machine or in a kernel of its own.",
        examples=(
            ("kproxy conformance run", "judge kproxy in every mode that a kernel here can run"),
            (
                "kproxy conformance run --kernel host --skip-missing-kernels",
                "leave out modes that need a guest, which take minutes",
            ),
            (
                "kproxy conformance run --proxy mine.toml --binary ./my-proxy --html report.html",
                "judge yours, with a report for a browser",
            ),
            (
                "kproxy conformance run --case 'internal-policy.*' --skip '*.two-*' -x",
                "a part of it, until something fails",
            ),
            ("kproxy conformance run --last-failed", "only what failed in the last run"),
        ),
        statuses=JUDGED,
    ),
    CommandHelp(
        name="conformance fuzz",
        user=OptionUser.FUZZ,
        about="run generated worlds, and shrink failing ones",
        examples=(("kproxy conformance fuzz --worlds 50 --seed 7", "the same fifty worlds each time"),),
        statuses=JUDGED,
    ),
    CommandHelp(
        name="conformance cluster",
        user=OptionUser.CLUSTER,
        about="judge the service proxy of a running cluster, by packets in its pods",
        examples=(
            (
                "kproxy conformance cluster --proxy kube-proxy --mode iptables --agent-image registry/kproxy:dev",
                "the cluster of kubectl's current context",
            ),
        ),
        statuses=JUDGED,
    ),
    CommandHelp(
        name="conformance report",
        user=OptionUser.REPORT,
        about="compare the results of several runs",
        examples=(
            (
                "kproxy conformance report iptables.json nftables.json --html both.html",
                "what differs, in a browser",
            ),
        ),
    ),
    CommandHelp(
        name="conformance verify",
        user=OptionUser.VERIFY,
        about="check results that somebody submits, and print what they may be cited for",
        description="Checks that results are complete and as the run wrote them, with who made the proxy and when it was judged, "
        "and prints its profiles: core, and each further feature.",
        examples=(
            ("kproxy conformance verify results.json", "in a line for each mode"),
            ("kproxy conformance verify results.json -o svg --output badge.svg", "as a badge"),
        ),
        statuses=(
            (0, "verified, and core passed"),
            (1, "verified, and core did not pass"),
            (2, "not verified: the messages say why"),
        ),
    ),
    CommandHelp(
        name="conformance list",
        user=OptionUser.LIST,
        about="list the catalogue",
        examples=(
            ("kproxy conformance list --case 'affinity.*'", "the cases of a group"),
            ("kproxy conformance list -o json --output catalogue.json", "all of it, for a program"),
        ),
    ),
    CommandHelp(
        name="conformance show",
        user=OptionUser.SHOW,
        about="all about one case: its steps, what is lawful and why, and where it runs",
        examples=(("kproxy conformance show affinity.clients-stick", "as text"),),
    ),
)

_LAB = (
    CommandHelp(
        name="lab doctor",
        user=OptionUser.LAB_DOCTOR,
        about="what each kernel can do here, and how to get what is missing",
        statuses=((0, "a kernel here can run the lab"), (2, "none can: the lines say what to do")),
    ),
    CommandHelp(
        name="lab kernel build",
        user=OptionUser.LAB_KERNEL_BUILD,
        about="User-Mode Linux: fetch Debian's source, build, test, keep (10 minutes of CPU)",
        statuses=DONE,
    ),
    CommandHelp(
        name="lab kernel fetch",
        user=OptionUser.LAB_KERNEL_FETCH,
        about="get Debian's kernel for virtual machines, without installing it",
        statuses=DONE,
    ),
    CommandHelp(
        name="lab up",
        user=OptionUser.LAB_UP,
        about="build your cluster from a dump, and keep it until Ctrl-C",
        examples=(
            ("kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml >cluster.yaml", "the dump"),
            ("kproxy lab up -f cluster.yaml --proxy kproxy:nftables", "two of its nodes, here"),
        ),
        statuses=((0, "it was ended"), (2, "it could not be built: the message says why")),
    ),
    CommandHelp(
        name="lab exec",
        user=OptionUser.LAB_EXEC,
        about="run a program in a running lab: in a pod, a node or a client",
        examples=(("kproxy lab exec pod/web-0 -- curl -s http://10.96.0.10", "as that pod"),),
        statuses=((0, "that of the program"), (2, "there is no such lab or place")),
    ),
    CommandHelp(
        name="lab kubectl",
        user=OptionUser.LAB_KUBECTL,
        about="run kubectl against a running lab's API server",
        statuses=((0, "that of kubectl"), (2, "there is no such lab")),
    ),
    CommandHelp(
        name="lab down",
        user=OptionUser.LAB_DOWN,
        about="end a running lab",
        statuses=((0, "ended"), (2, "there is no such lab")),
    ),
)

_NO_CLUSTER = (2, "there is no such cluster")
_LAB_CLUSTER = (
    CommandHelp(
        name="lab cluster up",
        user=OptionUser.LAB_CLUSTER_UP,
        about="start a cluster, and keep it until Ctrl-C",
        examples=(
            ("kproxy lab cluster up --assets DIR", "three nodes, with kproxy in nftables mode"),
            ("kproxy lab cluster up --assets DIR --proxy kube-proxy --mode iptables", "with kube-proxy"),
            ("kproxy lab cluster up --assets DIR --proxy FILE.toml --binary PATH", "with your own proxy"),
        ),
        statuses=((0, "it was ended"), (2, "it could not be started: the message says why")),
    ),
    CommandHelp(
        name="lab cluster fetch",
        user=OptionUser.LAB_CLUSTER_FETCH,
        about="get Kubernetes' programs from the release site, with their checksums verified",
        statuses=((0, "all are there"), (2, "some are missing: the message names them")),
    ),
    CommandHelp(
        name="lab cluster exec",
        user=OptionUser.LAB_CLUSTER_EXEC,
        about="run a program on a node, or on a client outside",
        examples=(("kproxy lab cluster exec node/node-1 -- nft list ruleset", "the rules of a node"),),
        statuses=((0, "that of the program"), (2, "there is no such cluster or place")),
    ),
    CommandHelp(
        name="lab cluster kubectl",
        user=OptionUser.LAB_CLUSTER_KUBECTL,
        about="run kubectl as the cluster's administrator",
        statuses=((0, "that of kubectl"), _NO_CLUSTER),
    ),
    CommandHelp(
        name="lab cluster kubeconfig",
        user=OptionUser.LAB_CLUSTER_KUBECONFIG,
        about="print the path of the cluster's kubeconfig",
        statuses=((0, "printed"), _NO_CLUSTER),
    ),
    CommandHelp(
        name="lab cluster down",
        user=OptionUser.LAB_CLUSTER_DOWN,
        about="end a running cluster",
        statuses=((0, "ended"), _NO_CLUSTER),
    ),
)

_QUERIES = (
    CommandHelp(
        name="spec show",
        user=OptionUser.SPEC_SHOW,
        about="what is known of a clause, case, behaviour, regression or topic",
        examples=(
            ("kproxy spec show", "the topics"),
            (
                "kproxy spec show conntrack.udp.moves-off-removed-endpoint",
                "a clause, and every place that cites it",
            ),
        ),
    ),
    CommandHelp(
        name="spec explain",
        user=OptionUser.EXPLAIN,
        about="what is lawful for one packet in your cluster, and why",
        examples=(
            ("kproxy spec explain -f cluster.yaml --from pod/web-0 --to svc/web:80", "with its clauses"),
        ),
    ),
    CommandHelp(
        name="compare",
        user=OptionUser.COMPARE,
        about="what differs between two proxies, on your own Services",
        examples=(
            (
                "kproxy compare -f cluster.yaml --a kube-proxy:iptables --b kube-proxy:nftables --binary ./kube-proxy",
                "before a migration",
            ),
        ),
        statuses=((0, "no unknown difference"), (1, "at least one"), (2, "it could not be compared")),
    ),
    CommandHelp(
        name="trace",
        user=OptionUser.TRACE,
        about="which rule of this node, or of saved rules, handles a packet",
        description="Prints which rule handles a packet: its way through chains, maps and virtual servers, whichever program wrote "
        "them, and the outcome. Without -f the rules of this node are read, as root; nothing is changed.",
        examples=(
            ("kproxy trace --from 10.244.1.11 --to 10.96.0.10:53/udp", "on a node"),
            (
                "kproxy trace -f rules.txt --from host --to 10.96.0.10:443",
                "by rules that iptables-save or nft printed",
            ),
        ),
    ),
    CommandHelp(
        name="simulate",
        user=OptionUser.SIMULATE,
        about="deterministic simulation: random changes, faults and packets, replayed exactly from a seed",
        description="Deterministic simulation of two nodes with their proxies, an API server and clients: random changes, faults and "
        "packets, replayed to the nanosecond from a seed. Each packet is judged by the specification. Needs a kernel of `kproxy lab kernel build`.",
        examples=(("kproxy simulate --seeds 0..99 --mode nftables", "a hundred universes"),),
        statuses=((0, "all was lawful"), (1, "something was not"), (2, "it could not be simulated")),
    ),
)

_OWN = (
    CommandHelp(
        name="completion",
        user=OptionUser.COMPLETION,
        about="print the completion of a shell",
        examples=(
            ('eval "$(kproxy completion bash)"', "in ~/.bashrc"),
            ("kproxy completion zsh >~/.zfunc/_kproxy", "in a folder of zsh's fpath"),
        ),
    ),
    CommandHelp(name="version", user=OptionUser.VERSION, about="print the version"),
)

COMMANDS = (*_CONFORMANCE, *_LAB, *_LAB_CLUSTER, *_QUERIES, *_OWN)
"""Every command but ``run``, which has kube-proxy's flags, and ``help``."""

GROUPS_OF_COMMANDS = {
    "conformance": "judge a service proxy by real packets",
    "lab": "a lab of your own cluster, and the kernels that labs can run on",
    "lab kernel": "more kernels for the lab",
    "lab cluster": "a cluster of real kubelets on this machine",
    "spec": "query the specification",
}
"""Commands that have only further commands."""

REPLACED = {"--json": "-o json --output FILE"}
"""Options that other commands have, or that were taken away: what to type in their place."""


def help_of(user: OptionUser) -> CommandHelp:
    """The row of a command."""
    return next(command for command in COMMANDS if command.user is user)
