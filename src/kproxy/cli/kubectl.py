"""``kubectl kproxy``: kproxy's commands for a cluster, on live reads by kubectl's current context.

kubectl finds the program ``kubectl-kproxy`` on PATH. It only reads, by kubectl itself: credentials, proxies and plugins
are kubectl's. What it read goes to the command of the same name as a file; ``trace`` also reads the rules of a node, by
``kubectl exec`` in the pod of its service proxy.

https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kproxy.cli.output import run_until_closed
from kproxy.cli.parser import did_you_mean
from kproxy.linux.host import HostError, run_tool

USAGE = """\
usage: kubectl kproxy [--context NAME] [--kubeconfig FILE] COMMAND [OPTION...]

commands, whose options are those of kproxy, without -f:
  explain   what is lawful for one packet in the cluster, and why
  compare   what differs between two proxies, on the cluster's Services
  trace     which rule of a node handles a packet: --node NAME
  lab up    the cluster's Services in a lab on this machine; lab exec, lab down

kubectl kproxy explain --from pod/web-0 --to svc/web:80
kubectl kproxy trace --node node-1 --from 10.244.1.11 --to 10.96.0.10:53/udp
`kubectl kproxy COMMAND --help` lists the options of a command.
"""

COMMANDS = {
    "explain": ("spec", "explain"),
    "compare": ("compare",),
    "trace": ("trace",),
    "lab": ("lab",),
}
"""Commands of the plugin, each with the path of kproxy's."""

OPTIONS_OF_KUBECTL = ("--context", "--kubeconfig", "--cluster", "--user")
"""Options that go to kubectl."""

_KINDS = ("services", "endpointslices", "nodes")
_NEWER_KIND = "servicecidrs"
"""Since Kubernetes 1.33."""
_KUBE_PROXY, _KPROXY = "k8s-app=kube-proxy", "app.kubernetes.io/name=kproxy"
"""Labels of kubeadm's DaemonSet and of ours."""
_OURSELVES = ("/usr/bin/python3", "/usr/lib/kproxy/start.py", "trace", "-f", "-")
"""`kproxy trace` in our image, which has no root; objects come by standard input."""
_RULES = (
    ("iptables-save",),
    ("ip6tables-save",),
    ("nft", "-j", "list", "ruleset"),
    ("ipset", "save"),
    ("ipvsadm", "-Sn"),
    ("ip", "-j", "address"),
    ("ip", "-j", "route", "show", "table", "all"),
)
"""Commands that print what `kproxy trace` reads; an image may lack some."""
_HELP = {"-h", "--help"}
_CANNOT = 2


class CannotReadError(Exception):
    """The cluster, or a node's rules, cannot be read; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A command line: options for kubectl, the node whose rules are read, and the command with its options."""

    kubectl: tuple[str, ...]
    node: str
    command: tuple[str, ...]


def run_plugin(arguments: Sequence[str] | None = None) -> int:
    """Run the plugin; returns the exit status, that of kproxy's command or 2."""
    given = split_arguments(sys.argv[1:] if arguments is None else arguments)
    return run_until_closed(partial(_run_command, given), 0)


def _run_command(given: Arguments) -> int:
    name = given.command[0] if given.command else ""
    if name in {"", "help", "-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0 if name else _CANNOT
    if name not in COMMANDS:
        sys.stderr.write(f"kubectl kproxy: unknown command {name}{did_you_mean(name, COMMANDS)}\n{USAGE}")
        return _CANNOT
    try:
        with tempfile.TemporaryDirectory(prefix="kubectl-kproxy-") as folder:
            return _run(*_prepared(given, Path(folder)))
    except CannotReadError as reason:
        sys.stderr.write(f"kubectl kproxy {name}: {reason}\n")
        return _CANNOT


def split_arguments(arguments: Sequence[str]) -> Arguments:
    """Set kubectl's own options apart, and ``--node`` of ``trace``; after ``--`` nothing is."""
    rest, kubectl, node = list(arguments), [], ""
    others: list[str] = []
    while rest and rest[0] != "--":
        token = rest.pop(0)
        name, equals, value = token.partition("=")
        is_node = name == "--node" and others[:1] == ["trace"]
        if name not in OPTIONS_OF_KUBECTL and not is_node:
            others.append(token)
            continue
        if not equals:
            value = rest.pop(0) if rest else ""
        if is_node:
            node = value
        else:
            kubectl.append(f"{name}={value}")
    return Arguments(tuple(kubectl), node, (*others, *rest))


def _prepared(given: Arguments, folder: Path) -> tuple[list[str], Path | None]:
    """The command to run and what it reads from standard input, after reading what it needs into files of a folder."""
    name, *options = given.command
    needs_nothing = _HELP & set(options) or (name == "lab" and options[:1] != ["up"])
    own = [sys.executable, "-m", "kproxy", *COMMANDS[name]]
    if needs_nothing:
        return [*own, *options], None
    reader = _Reader(("kubectl", *given.kubectl))
    pods = ("pods",) if any("pod/" in token for token in options) else ()
    objects = _kept(folder, "cluster.json", reader.objects((*_KINDS, *pods)))
    if name != "trace":
        return [*own, *_with_files(options, [objects])], None
    if not given.node:
        raise CannotReadError("--node NAME: the node whose rules are read; `kubectl get nodes` lists them")
    pod = reader.proxy_pod(given.node)
    addresses = [f"--node-address={address}" for address in reader.addresses(given.node)]
    if pod.is_kproxy:
        return [*reader.execute(pod, "-i"), *_OURSELVES, *addresses, *options], objects
    rules = [_kept(folder, file, text) for file, text in reader.rules(pod)]
    return [*own, *_with_files(options, [objects, *rules]), *addresses], None


def _kept(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@dataclass(frozen=True, slots=True)
class _ProxyPod:
    """Pod of a node's service proxy."""

    namespace: str
    name: str
    is_kproxy: bool


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads a cluster by ``kubectl``, a command line without its action.  All methods raise `CannotReadError`."""

    kubectl: tuple[str, ...]

    def objects(self, kinds: Sequence[str]) -> str:
        """Objects of all namespaces, as JSON; without ServiceCIDRs where the API server has none."""
        try:
            return self._run("get", ",".join((*kinds, _NEWER_KIND)), "-A", "-o", "json")
        except CannotReadError as error:
            if f'resource type "{_NEWER_KIND}"' not in str(error):
                raise
            return self._run("get", ",".join(kinds), "-A", "-o", "json")

    def addresses(self, node: str) -> list[str]:
        """Internal addresses of a node; its proxy's image may have no program that lists them."""
        internal = 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}'
        return self._run("get", "node", node, "-o", internal).split()

    def proxy_pod(self, node: str) -> _ProxyPod:
        """Pod of kube-proxy or of kproxy on a node."""
        shown = 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
        for label in (_KUBE_PROXY, _KPROXY):
            where = ("-A", "-l", label, "--field-selector", f"spec.nodeName={node}")
            if found := self._run("get", "pods", *where, "-o", shown).split():
                namespace, _, name = found[0].partition("/")
                return _ProxyPod(namespace, name, label == _KPROXY)
        raise CannotReadError(
            f"node {node} has no pod labelled {_KUBE_PROXY} or {_KPROXY}: type `kproxy trace` on the node itself"
        )

    def execute(self, pod: _ProxyPod, *options: str) -> list[str]:
        """Command line that runs what follows it in a pod's first container."""
        container = self._run(
            "get", "pod", "-n", pod.namespace, pod.name, "-o", "jsonpath={.spec.containers[0].name}"
        )
        return [*self.kubectl, "exec", *options, "-n", pod.namespace, pod.name, "-c", container, "--"]

    def rules(self, pod: _ProxyPod) -> Iterator[tuple[str, str]]:
        """Name and text of each file of rules; what the pod's image has no program for is left out."""
        prefix, failed = self.execute(pod), []
        for command in _RULES:
            try:
                yield "-".join(command), run_tool([*prefix, *command])
            except HostError as error:
                failed.append(f"{command[0]}: {error.detail}")
        if len(failed) == len(_RULES):
            raise CannotReadError(f"pod {pod.namespace}/{pod.name} shows no rules: {failed[0]}")

    def _run(self, *arguments: str) -> str:
        try:
            return run_tool((*self.kubectl, *arguments))
        except HostError as error:
            raise CannotReadError(error.detail.splitlines()[-1]) from error


def _with_files(command: Sequence[str], files: Sequence[Path]) -> list[str]:
    """Arguments with the files as the first options: in front of a ``--``, and after ``up``."""
    lead = 1 if command[:1] and not command[0].startswith("-") else 0
    given = [token for file in files for token in ("-f", str(file))]
    return [*command[:lead], *given, *command[lead:]]


def _run(command: Sequence[str], stdin: Path | None) -> int:
    """Run a command in a process of its own, whose end is waited for when the terminal interrupts both."""
    signal.signal(signal.SIGINT, lambda *_: None)
    with stdin.open("rb") if stdin else nullcontext() as source:
        return subprocess.run(command, stdin=source, check=False).returncode  # noqa: S603 (arguments, no shell)


if __name__ == "__main__":
    sys.exit(run_plugin())
