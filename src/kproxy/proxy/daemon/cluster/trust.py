"""TLS context for the API server, from the certificates that are in their files now: renewing them needs no restart.

Used by `kproxy.proxy.daemon.cluster.client` for each connection.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable

from kproxy.proxy.daemon.cluster.kubeconfig import ClientCertificate, ClientConfig, KubeconfigError
from kproxy.tls import client_context

_Stamp = tuple[tuple[int, int, int], ...]

log = logging.getLogger(__name__)


class TlsContextCache:
    """TLS context with the authorities and the client certificate, rebuilt when their files change; shared by threads."""

    def __init__(self, connection: ClientConfig, reload: Callable[[], ClientConfig] | None = None) -> None:
        """``reload`` reads the connection again. Raises `ssl.SSLError` (an `OSError`) for an invalid certificate."""
        self._connection = connection
        self._reread = reload
        self._lock = threading.Lock()
        self._stamp = _stamp(connection)
        self._given: ClientCertificate | None = None
        self._context = _context(connection, None)

    def context(self, given: ClientCertificate | None = None) -> ssl.SSLContext:
        """Context for a new connection; ``given``: a plugin's certificate, which beats the kubeconfig's."""
        with self._lock:
            stamp = _stamp(self._connection)
            if stamp != self._stamp:
                self._reload_certificates(stamp)
            if given != self._given:
                self._context, self._given = _context(self._connection, given), given
            return self._context

    def _reload_certificates(self, stamp: _Stamp) -> None:
        """Rebuild the context; the old one is kept while the files do not fit together, as in the middle of a renewal."""
        if self._reread is None:
            return
        try:
            connection = self._reread()
            self._context = _context(connection, self._given)
        except (KubeconfigError, OSError) as error:
            log.info("certificates changed, but cannot be used yet: %s", error)
            return
        self._connection, self._stamp = connection, stamp
        log.info("certificates were renewed")


def _stamp(connection: ClientConfig) -> _Stamp:
    try:
        found = [os.stat(path) for path in connection.files]  # noqa: PTH116 - three numbers of it
    except OSError:
        return ()
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)


def _context(connection: ClientConfig, given: ClientCertificate | None) -> ssl.SSLContext:
    authority = connection.authority.decode() if connection.authority is not None else None
    context = client_context(cadata=authority)
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = given or connection.certificate
    if certificate is not None:
        _load_certificate(context, certificate)
    return context


def _load_certificate(context: ssl.SSLContext, pair: ClientCertificate) -> None:
    """Load a certificate and its key from a file in memory: OpenSSL reads from files only, and no key shall be left on a disk."""
    with os.fdopen(os.memfd_create("client-certificate"), "wb") as file:
        file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
