"""Certificates of a test CA, made by the openssl command."""

import http.server
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make(folder: Path, alternative: str, *names: str, extensions: Sequence[str] = ()) -> None:
    """``ca.crt``, and ``NAME.crt`` with ``NAME.key`` signed by it, each for the same ``DNS:...`` or ``IP:...``.

    ``extensions``: further lines of each certificate's extensions, as openssl-x509v3_config(5) has them.
    """
    openssl = shutil.which("openssl")
    assert openssl, "these tests need the openssl command: apt-get install openssl"

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    run("req", "-x509", *CURVE, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    for name in names:
        (folder / f"{name}.ext").write_text("\n".join((f"subjectAltName={alternative}", *extensions)))
        run("req", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext")
        run("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")


def speak_tls(folder: Path, server: http.server.HTTPServer) -> None:
    """Have a server speak TLS with ``server.crt``, to everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)


def require_client_certificate(folder: Path, server: http.server.HTTPServer) -> None:
    """Have a server speak TLS with ``server.crt``, to holders of a certificate of ``ca.crt`` only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
