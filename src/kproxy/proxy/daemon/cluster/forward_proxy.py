"""The proxy that requests to the API server go through, if any: from a kubeconfig or from the environment.  Opens nothing.

`kproxy.proxy.daemon.cluster.transport` connects through it. The rules are client-go's: ``proxy-url`` of a kubeconfig is
always used; without it the environment decides, by the names and matches of golang.org/x/net/http/httpproxy.

https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/#Cluster
https://pkg.go.dev/golang.org/x/net/http/httpproxy
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from kproxy.model.network import parse_address, parse_network

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_SERVER_PORTS = {"http": 80, "https": 443}


class ForwardProxyError(ValueError):
    """A text that names no proxy that can be used; ``str()`` says what can."""


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy: ``scheme`` http, https (the same, spoken inside of TLS) or socks5; user and password may be empty."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        """Its URL, without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def authorization(self) -> dict[str, str]:
        """``Proxy-Authorization`` of a request to it, if it has a user (RFC 9110, 11.7.2)."""
        if not self.user and not self.password:
            return {}
        pair = f"{self.user}:{self.password}".encode()
        return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def parse_forward_proxy(url: str) -> ForwardProxy:
    """The proxy of a URL; raises `ForwardProxyError`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ForwardProxyError(f"{_hidden(url)!r} is no URL of a proxy: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise ForwardProxyError(
            f"{_hidden(url)!r} is no proxy that kproxy can use: need http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"
        )
    scheme = parts.scheme.removesuffix("h")
    return ForwardProxy(
        scheme,
        parts.hostname,
        port or _PORTS[parts.scheme],
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )


def environment_proxy(server: str, environment: Mapping[str, str]) -> ForwardProxy | None:
    """The proxy for a server's URL by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``; raises `ForwardProxyError`.

    In capitals beats in small letters; a value without a scheme is one of http. This machine's own addresses need no proxy.
    """
    target = urlsplit(server)
    name = f"{target.scheme}_proxy"
    value = _either(environment, name)
    if not value or not _is_proxied(target, _either(environment, "no_proxy")):
        return None
    try:
        return parse_forward_proxy(value if "://" in value else f"http://{value}")
    except ForwardProxyError as error:
        raise ForwardProxyError(f"{name.upper()}: {error}") from error


def _either(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper(), "") or environment.get(name, "")


def _is_proxied(target: SplitResult, exceptions: str) -> bool:
    host = (target.hostname or "").lower()
    address = parse_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    port = target.port or _SERVER_PORTS[target.scheme]
    return not any(_excepts(entry.strip().lower(), host, port) for entry in exceptions.split(","))


def _excepts(entry: str, host: str, port: int) -> bool:
    """True if an entry of ``NO_PROXY`` names a host: ``*``, a range, an address or a domain, the last two with or without a port."""
    if entry == "*":
        return True
    address = parse_address(host)
    if "/" in entry:
        network = parse_network(entry)
        return network is not None and address is not None and address in network
    name, wanted = _host_and_port(entry)
    if not name or (wanted and wanted != str(port)):
        return False
    if parse_address(name) is not None:
        return parse_address(name) == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _host_and_port(entry: str) -> tuple[str, str]:
    """Host and port of an entry; a bare IPv6 address has colons and no port."""
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, port.removeprefix(":")
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host else (entry, "")


def _hidden(url: str) -> str:
    """A URL as a message may show it: without its user and password."""
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://...@{after}" if at else url
