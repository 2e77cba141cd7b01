"""Lists, paths, negotiation and discovery, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.lab.apiserver import ApiServer, ResourceKind, Verb
from tests.support.apiserver_client import IN_DEFAULT, SERVICES, SLICES, Client, put, served

PROXY_NAME = "service.kubernetes.io/service-proxy-name"


@served()
async def test_a_list_has_its_kind_its_revision_and_its_items(server: ApiServer, client: Client) -> None:
    revision = put(server, "web", clusterIP="10.96.0.1")
    later = server.store.put(ResourceKind.NODE, {"metadata": {"name": "a"}})
    found = await client.get(SERVICES)
    assert (found["kind"], found["apiVersion"]) == ("ServiceList", "v1")
    assert found["metadata"] == {"resourceVersion": str(later)}
    (item,) = found["items"]
    assert item["spec"] == {"clusterIP": "10.96.0.1"}
    assert item["metadata"]["resourceVersion"] == str(revision)
    assert (await client.get(SLICES))["items"] == []


@served()
async def test_a_single_object_names_its_kind(server: ApiServer, client: Client) -> None:
    put(server, "web")
    found = await client.get(f"{IN_DEFAULT}/web")
    assert (found["kind"], found["apiVersion"], found["metadata"]["name"]) == ("Service", "v1", "web")
    assert await client.refused(f"{IN_DEFAULT}/other") == (404, "NotFound")


@served()
async def test_what_kube_proxy_lists_leaves_out_what_is_not_for_it(server: ApiServer, client: Client) -> None:
    put(server, "web", clusterIP="10.96.0.1")
    put(server, "headless", clusterIP="None")
    put(server, "other-proxy", labels={PROXY_NAME: "x"}, clusterIP="10.96.0.2")
    query = {"fieldSelector": "spec.clusterIP!=None", "labelSelector": f"!{PROXY_NAME}"}
    assert await client.names(SERVICES) == ["headless", "other-proxy", "web"]
    assert await client.names(SERVICES, **query) == ["web"]


@served()
async def test_namespaces_divide_and_all_of_them_can_be_listed(server: ApiServer, client: Client) -> None:
    put(server, "web")
    put(server, "web", namespace="other")
    put(server, "dns", namespace="kube-system")
    assert await client.names(IN_DEFAULT) == ["web"]
    assert await client.names(SERVICES) == ["web", "dns", "web"]
    assert await client.names(SERVICES, fieldSelector="metadata.namespace=kube-system") == ["dns"]


@served()
async def test_pages_show_one_moment_though_objects_change_between(server: ApiServer, client: Client) -> None:
    for name in "abcde":
        put(server, name)
    first = await client.get(SERVICES, limit="2")
    server.store.delete(ResourceKind.SERVICE, "default", "d")
    put(server, "cc")
    put(server, "a", type="NodePort")
    second = await client.get(SERVICES, limit="2", **{"continue": first["metadata"]["continue"]})
    third = await client.get(SERVICES, limit="2", **{"continue": second["metadata"]["continue"]})
    pages = [first, second, third]
    assert [[i["metadata"]["name"] for i in page["items"]] for page in pages] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert first["metadata"]["remainingItemCount"] == 3
    assert "continue" not in third["metadata"]
    assert await client.names(SERVICES) == ["a", "b", "c", "cc", "e"]


@served()
async def test_a_page_after_a_compaction_is_expired(server: ApiServer, client: Client) -> None:
    put(server, "a")
    put(server, "b")
    token = (await client.get(SERVICES, limit="1"))["metadata"]["continue"]
    assert await client.names(SERVICES, **{"continue": token}) == ["b"]
    server.store.compact()
    assert await client.refused(SERVICES, **{"continue": token}) == (410, "Expired")


@served()
async def test_resource_version_selects_how_fresh_or_how_old(server: ApiServer, client: Client) -> None:
    old = put(server, "a")
    put(server, "b")
    assert await client.names(SERVICES, resourceVersion="0") == ["a", "b"]
    assert await client.names(SERVICES, resourceVersion=str(old)) == ["a", "b"]
    exact = {"resourceVersion": str(old), "resourceVersionMatch": "Exact"}
    assert await client.names(SERVICES, **exact) == ["a"]
    newer = {"resourceVersion": str(old), "resourceVersionMatch": "NotOlderThan"}
    assert await client.names(SERVICES, **newer) == ["a", "b"]
    server.store.compact()
    assert await client.refused(SERVICES, **exact) == (410, "Expired")


@served()
async def test_a_revision_of_the_future_is_refused_so_that_client_go_knows_it(
    server: ApiServer, client: Client
) -> None:
    put(server, "a")
    code, status = await client.send("GET", SERVICES, params={"resourceVersion": "99999"})
    assert (code, status["reason"]) == (504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ({"labelSelector": "a in b"}, (400, "BadRequest")),
        ({"fieldSelector": "spec.nothing=1"}, (400, "BadRequest")),
        ({"resourceVersion": "abc"}, (400, "BadRequest")),
        ({"continue": "abc"}, (400, "BadRequest")),
        ({"resourceVersionMatch": "Exact"}, (422, "Invalid")),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, (422, "Invalid")),
        ({"resourceVersionMatch": "Newest", "resourceVersion": "1"}, (422, "Invalid")),
        ({"sendInitialEvents": "true"}, (422, "Invalid")),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str], refusal: tuple[int, str]) -> None:
    @served()
    async def scenario(server: ApiServer, client: Client) -> None:
        put(server, "a")
        assert await client.names(SERVICES) == ["a"]
        assert await client.refused(SERVICES, **query) == refusal

    scenario()


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("*/*", 200),
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 406),
    ],
)
def test_json_is_answered_to_any_client_that_takes_it(accept: str, code: int) -> None:
    @served()
    async def scenario(client: Client) -> None:
        got, document = await client.send("GET", SERVICES, headers={"Accept": accept})
        assert (got, document["kind"]) == (code, "ServiceList" if code == 200 else "Status")

    scenario()


@served()
async def test_every_resource_discovery_names_can_be_listed(client: Client) -> None:
    groups: list[dict[str, Any]] = (await client.get("/apis"))["groups"]
    paths = ["/api/v1"] + [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
    seen = set()
    for path in paths:
        for resource in (await client.get(path))["resources"]:
            found = await client.get(f"{path}/{resource['name']}")
            assert found["kind"] == f"{resource['kind']}List"
            seen.add(f"{path}/{resource['name']}")
    assert seen == {
        "/api/v1/services",
        "/api/v1/endpoints",
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/events",
        "/api/v1/pods",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/apis/networking.k8s.io/v1/networkpolicies",
        "/apis/events.k8s.io/v1/events",
        "/apis/coordination.k8s.io/v1/leases",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v2",
        "/api/v2/services",
        "/apis/nothing.k8s.io",
        "/api/v1/configmaps",
        "/api/v1/services/web",
        "/api/v1/namespaces/default/nodes",
        "/apis/discovery.k8s.io/v1/services",
    ],
)
def test_what_is_not_served_is_a_404_status(path: str) -> None:
    @served()
    async def scenario(client: Client) -> None:
        assert await client.refused(path) == (404, "NotFound")

    scenario()


@served()
async def test_health_and_version_answer(client: Client) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        async with client.session.get(client.url + path) as response:
            assert (response.status, await response.text()) == (200, "ok")
    assert (await client.get("/version"))["gitVersion"].startswith("v1.")
    assert (await client.get("/api"))["versions"] == ["v1"]


@served()
async def test_what_was_requested_is_remembered(server: ApiServer, client: Client) -> None:
    await client.get(SLICES, labelSelector="!service.kubernetes.io/headless")
    await client.refused(f"{IN_DEFAULT}/web")
    first, second = server.requests
    assert (first.verb, first.kind, first.namespace) == (Verb.LIST, ResourceKind.ENDPOINT_SLICE, None)
    assert first.query == {"labelSelector": "!service.kubernetes.io/headless"}
    assert (second.verb, second.kind, second.namespace, second.name) == (
        Verb.GET,
        ResourceKind.SERVICE,
        "default",
        "web",
    )
    assert first.client == "127.0.0.1"
    assert "aiohttp" in first.headers["User-Agent"]
