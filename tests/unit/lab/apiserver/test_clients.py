"""The official Python client against the server, by way of the kubeconfig; and TLS."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from kubernetes import client, config, watch

from kproxy.lab.apiserver import ApiServer, ResourceKind, kubeconfig, url_of
from tests.support.apiserver_client import service

Caller = Callable[[Callable[[], object]], object]


@contextmanager
def running(ssl_context: ssl.SSLContext | None = None) -> Iterator[tuple[ApiServer, str, Caller]]:
    """A server in a thread of its own, its URL, and a way to call a function in that thread."""
    loop, sock, ready = asyncio.new_event_loop(), socket.create_server(("127.0.0.1", 0)), Event()
    made: list[Any] = []

    async def serve(stop: asyncio.Event) -> None:
        async with ApiServer() as server:
            await server.listen([sock], ssl_context=ssl_context)
            made.extend((server, stop))
            ready.set()
            await stop.wait()

    thread = Thread(target=lambda: loop.run_until_complete(serve(asyncio.Event())))
    thread.start()
    assert ready.wait(10)
    server, stop = made

    def call(function: Callable[[], object]) -> object:
        async def inside() -> object:
            return function()

        return asyncio.run_coroutine_threadsafe(inside(), loop).result(10)

    try:
        yield server, url_of(sock, tls=ssl_context is not None), call
    finally:
        call(stop.set)
        thread.join(10)
        loop.close()


@contextmanager
def core_api(text: str) -> Iterator[Any]:
    """The client's core API; typed loosely, since the client calls every field optional."""
    with config.new_client_from_config_dict(yaml.safe_load(text)) as api:  # type: ignore[no-untyped-call]
        yield client.CoreV1Api(api)


def streamed(function: Callable[..., Any], query: dict[str, object]) -> Iterator[Any]:
    """The client's watch of a list function."""
    events: Iterator[Any] = watch.Watch().stream(function, **query)  # type: ignore[no-untyped-call]
    return events


def test_the_python_client_creates_reads_patches_and_deletes() -> None:
    with running() as (_, url, _call), core_api(kubeconfig(url)) as api:
        metadata = client.V1ObjectMeta(name="web", labels={"app": "web"})
        spec = client.V1ServiceSpec(cluster_ip="10.96.0.1", ports=[client.V1ServicePort(port=80)])
        created = api.create_namespaced_service("default", client.V1Service(metadata=metadata, spec=spec))
        assert created.metadata.uid
        found = api.list_service_for_all_namespaces(label_selector="app in (web)")
        assert [s.spec.ports[0].port for s in found.items] == [80]
        assert found.metadata.resource_version == created.metadata.resource_version
        patched = api.patch_namespaced_service("web", "default", {"spec": {"type": "NodePort"}})
        assert (patched.spec.type, patched.spec.cluster_ip) == ("NodePort", "10.96.0.1")
        with pytest.raises(client.ApiException) as caught:
            api.replace_namespaced_service("web", "default", created)
        assert caught.value.status == 409
        api.delete_namespaced_service("web", "default")
        with pytest.raises(client.ApiException) as caught:
            api.read_namespaced_service("web", "default")
        assert (caught.value.status, caught.value.reason) == (404, "Not Found")


def test_the_python_client_watches_and_resumes_where_it_was() -> None:
    with running() as (server, url, call), core_api(kubeconfig(url)) as api:
        put = server.store.put
        call(partial(put, ResourceKind.SERVICE, service("a")))
        listed = api.list_service_for_all_namespaces()
        assert [s.metadata.name for s in listed.items] == ["a"]
        revision = listed.metadata.resource_version
        seen = []
        for name in ("b", "c"):
            call(partial(put, ResourceKind.SERVICE, service(name)))
            call(partial(put, ResourceKind.SERVICE, service(name, type="NodePort")))
            query: dict[str, object] = {"resource_version": revision, "timeout_seconds": 1}
            for event in streamed(api.list_service_for_all_namespaces, query):
                seen.append((event["type"], event["object"].metadata.name))
                revision = event["object"].metadata.resource_version
        assert seen == [("ADDED", "b"), ("MODIFIED", "b"), ("ADDED", "c"), ("MODIFIED", "c")]


def test_the_python_client_pages_and_learns_that_history_is_gone() -> None:
    with running() as (server, url, call), core_api(kubeconfig(url)) as api:
        old = call(partial(server.store.put, ResourceKind.SERVICE, service("a")))
        call(partial(server.store.put, ResourceKind.SERVICE, service("b")))
        first = api.list_service_for_all_namespaces(limit=1)
        second = api.list_service_for_all_namespaces(limit=1, _continue=first.metadata._continue)
        assert [page.items[0].metadata.name for page in (first, second)] == ["a", "b"]
        call(server.store.compact)
        query: dict[str, object] = {"resource_version": str(old), "timeout_seconds": 1}
        with pytest.raises(client.ApiException) as caught:
            list(streamed(api.list_service_for_all_namespaces, query))
        assert caught.value.status == 410


def test_the_kubeconfig_carries_a_token_if_there_is_one() -> None:
    with running() as (server, url, _call):
        with core_api(kubeconfig(url, token="t0ken")) as api:  # noqa: S106
            api.list_service_for_all_namespaces()
        with core_api(kubeconfig(url)) as api:
            api.list_service_for_all_namespaces()
        assert [request.headers.get("Authorization") for request in server.requests] == ["Bearer t0ken", None]


def test_tls_is_served_with_a_context_and_trusted_through_the_kubeconfig(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=lab", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    subprocess.run([*new, "-keyout", key, "-out", certificate, *subject], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    authority = certificate.read_bytes()
    with running(context) as (_, url, _call):
        text = kubeconfig(url, certificate_authority=authority)
        cluster = yaml.safe_load(text)["clusters"][0]["cluster"]
        assert url.startswith("https://")
        assert base64.b64decode(cluster["certificate-authority-data"]) == authority
        with core_api(text) as api:
            assert api.list_service_for_all_namespaces().items == []
