"""Certificates of a test CA, made by the openssl command."""

import shutil
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
