"""Which proxy is used, as golang.org/x/net/http/httpproxy and client-go's parseProxyURL have it."""

import pytest

from kproxy.proxy.daemon.cluster.forward_proxy import (
    ForwardProxy,
    ForwardProxyError,
    environment_proxy,
    parse_forward_proxy,
)

SERVER = "https://api.cluster.test:6443"


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://p", ForwardProxy("http", "p", 80)),
        ("https://p", ForwardProxy("https", "p", 443)),
        ("socks5://p", ForwardProxy("socks5", "p", 1080)),
        ("socks5h://p:1", ForwardProxy("socks5", "p", 1)),
        ("http://[fd00::1]:3128/", ForwardProxy("http", "fd00::1", 3128)),
        ("http://u:p%40ss@p:8080", ForwardProxy("http", "p", 8080, "u", "p@ss")),
    ],
)
def test_a_url_names_a_proxy(url: str, proxy: ForwardProxy) -> None:
    assert parse_forward_proxy(url) == proxy


@pytest.mark.parametrize(
    "url", ["ftp://p", "p:3128", "http://", "http://p:0", "http://p:x", "http://[p", "quic://u:secret@p"]
)
def test_what_is_no_proxy_is_refused_and_its_password_is_not_shown(url: str) -> None:
    with pytest.raises(ForwardProxyError) as error:
        parse_forward_proxy(url)
    assert url.rpartition("@")[2] in str(error.value)
    assert "secret" not in str(error.value)


def test_a_proxy_is_shown_without_its_password() -> None:
    assert str(parse_forward_proxy("http://u:secret@[fd00::1]")) == "http://[fd00::1]:80"


def test_user_and_password_are_a_header() -> None:
    assert parse_forward_proxy("http://p").authorization == {}
    assert parse_forward_proxy("http://aladdin:opensesame@p").authorization == {
        "Proxy-Authorization": "Basic YWxhZGRpbjpvcGVuc2VzYW1l"  # RFC 7617 has it with a space
    }


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://up:1", "https_proxy": "http://low:1"}, "up"),
        ({"https_proxy": "low:1"}, "low"),
        ({"HTTP_PROXY": "http://other:1"}, None),
        ({"HTTPS_PROXY": ""}, None),
    ],
)
def test_the_environment_names_a_proxy_for_the_servers_scheme(
    environment: dict[str, str], host: str | None
) -> None:
    found = environment_proxy(SERVER, environment)
    assert (found.host if found else None) == host


def test_http_proxy_is_that_of_http_servers() -> None:
    environment = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "http://other:1"}
    found = environment_proxy("http://api:8080", environment)
    assert found is not None
    assert found.host == "plain"


@pytest.mark.parametrize(
    ("server", "exceptions", "proxied"),
    [
        (SERVER, "", True),
        (SERVER, "*", False),
        (SERVER, "other, api.cluster.test", False),
        (SERVER, "CLUSTER.test", False),
        (SERVER, "luster.test", True),
        (SERVER, ".cluster.test", False),
        (SERVER, "*.cluster.test", False),
        ("https://cluster.test", ".cluster.test", True),
        ("https://cluster.test", "cluster.test", False),
        (SERVER, "api.cluster.test:6443", False),
        (SERVER, "api.cluster.test:443", True),
        ("https://cluster.test", "cluster.test:443", False),
        ("https://10.96.0.1", "10.96.0.0/16", False),
        ("https://10.97.0.1", "10.96.0.0/16", True),
        ("https://10.96.0.1", "10.96.0.1:443", False),
        ("https://10.96.0.1", "10.96.0.1:444", True),
        ("https://10.96.0.1", "0.96.0.1", True),
        ("https://[fd00::1]:6443", "fd00::1", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "fd00::/64", False),
        ("https://localhost:6443", "", False),
        ("https://127.8.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)  # fmt: skip
def test_some_servers_are_reached_without_it(server: str, exceptions: str, *, proxied: bool) -> None:
    environment = {"HTTPS_PROXY": "http://p:1", "NO_PROXY": exceptions}
    assert (environment_proxy(server, environment) is not None) == proxied


def test_a_bad_value_is_named() -> None:
    with pytest.raises(ForwardProxyError, match=r"^HTTPS_PROXY: 'ftp://p'"):
        environment_proxy(SERVER, {"HTTPS_PROXY": "ftp://p"})
