"""TLS contexts of clients, which accept the certificates that Kubernetes' own clients accept.

Python 3.13 began to hold certificates to all of RFC 5280 (`ssl.VERIFY_X509_STRICT`), so it refuses an API
server whose certificate has no Authority Key Identifier, as older cfssl, EKS and plain openssl make them;
Go's crypto/x509 accepts it, on every version. Go also takes each certificate of a pool as an anchor of trust,
and not only self-signed ones.

Used by all clients of an API server: the daemon, the lab, the cluster testbed.
https://docs.python.org/3/library/ssl.html
"""

from __future__ import annotations

import ssl


def client_context(*, cadata: str | None = None, cafile: str | None = None) -> ssl.SSLContext:
    """Context that verifies servers, by these authorities (PEM text, or a file of it) or by the system's.

    Raises `ssl.SSLError` or `OSError` where the authorities cannot be read.
    """
    context = ssl.create_default_context(cadata=cadata, cafile=cafile)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
