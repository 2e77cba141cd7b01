"""Keys and certificates of a cluster's control plane, made by openssl, and tokens of its users.

One authority signs the API server's certificate, by which kubelets and pods know it, and the API server's own client
certificate, by which kubelets know it. All live as long as the cluster's folder.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.cluster.layout import ClusterLayout, api_service_address, control_plane_address
from kproxy.lab.namespaces import LabError
from kproxy.model.network import Family

ADMIN, MANAGER, SCHEDULER = "admin", "system:kube-controller-manager", "system:kube-scheduler"
"""Users of the control plane; a node's is `node_user`."""

_GROUPS = {ADMIN: "system:masters"}
_DAYS = "3650"
_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_REQUEST = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch")


def node_user(node: str) -> str:
    """User that a node's kubelet is (https://kubernetes.io/docs/reference/access-authn-authz/node/)."""
    return f"system:node:{node}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files below ``folder``, and the token of each user."""

    folder: Path
    tokens: Mapping[str, str]

    @property
    def authority(self) -> Path:
        """Certificate (PEM) of the authority."""
        return self.folder / "ca.crt"

    def certificate(self, name: str) -> Path:
        """Certificate of ``apiserver`` or ``kubelet-client``."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Private key of ``apiserver``, ``kubelet-client`` or ``service-account``."""
        return self.folder / f"{name}.key"

    @property
    def token_file(self) -> Path:
        """File for kube-apiserver's ``--token-auth-file``."""
        return self.folder / "tokens.csv"


def make_credentials(openssl: Path, folder: Path, layout: ClusterLayout) -> Credentials:
    """Make all of them in a new folder.  Raises `LabError` when openssl fails."""
    folder.mkdir(mode=0o700)
    users = (ADMIN, MANAGER, SCHEDULER, *map(node_user, layout.nodes))
    made = Credentials(folder, {user: secrets.token_hex(16) for user in users})
    made.token_file.write_text(_token_lines(made.tokens))
    authority = (*_REQUEST, "-x509", "-days", _DAYS, "-subj", "/CN=kproxy-lab-cluster")
    _run(openssl, (*authority, "-keyout", str(folder / "ca.key"), "-out", str(made.authority)))
    addresses = [
        *(str(control_plane_address(family)) for family in Family),
        str(api_service_address()),
        "127.0.0.1",
    ]
    names = ",".join([*(f"DNS:{name}" for name in _NAMES), *(f"IP:{address}" for address in addresses)])
    _sign(openssl, made, "apiserver", "/CN=kube-apiserver", (f"subjectAltName={names}",))
    user = "/O=system:masters/CN=kube-apiserver-kubelet-client"
    _sign(openssl, made, "kubelet-client", user, ("extendedKeyUsage=clientAuth",))
    ec = ("ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out", str(made.key("service-account")))
    _run(openssl, ec)
    return made


def _token_lines(tokens: Mapping[str, str]) -> str:
    """Lines of token, name, UID and groups."""
    lines = []
    for user, token in tokens.items():
        group = _GROUPS.get(user) or ("system:nodes" if user.startswith("system:node:") else "")
        lines.append(f'{token},{user},{user},"{group}"\n')
    return "".join(lines)


def _sign(openssl: Path, made: Credentials, name: str, subject: str, extensions: Iterable[str]) -> None:
    request, wanted = made.folder / f"{name}.csr", made.folder / f"{name}.ext"
    wanted.write_text("\n".join(extensions))
    _run(openssl, (*_REQUEST, "-subj", subject, "-keyout", str(made.key(name)), "-out", str(request)))
    authority = ("-CA", str(made.authority), "-CAkey", str(made.folder / "ca.key"), "-CAcreateserial")
    to = ("-days", _DAYS, "-extfile", str(wanted), "-in", str(request), "-out", str(made.certificate(name)))
    _run(openssl, ("x509", "-req", *authority, *to))


def _run(openssl: Path, arguments: Iterable[str]) -> None:
    done = subprocess.run([str(openssl), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"openssl {next(iter(arguments))}: {done.stderr.strip()[-500:]}")
