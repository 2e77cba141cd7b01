"""Objects of the API from JSON: items of lists, kinds that are not read, what does not decode.

Source: items of a typed list have no kind of their own (https://kubernetes.io/docs/reference/using-api/api-concepts/#collections).
"""

from __future__ import annotations

import json
from typing import Any

from kproxy.model.api import Cluster, parse_cluster


def parsed(kind: str, *items: dict[str, Any]) -> Cluster:
    return parse_cluster(json.dumps({"kind": kind, "items": items}).encode())


def item(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"namespace": "a", "name": name}, **fields}


def test_an_item_without_a_kind_is_of_the_kind_of_its_list() -> None:
    assert list(parsed("ServiceList", item("web")).services) == [("a", "web")]
    assert list(parsed("EndpointSliceList", item("web-1")).slices) == [("a", "web-1")]


def test_an_item_whose_kind_is_no_text_is_of_the_kind_of_its_list() -> None:
    assert list(parsed("ServiceList", item("web", kind=7)).services) == [("a", "web")]
    assert parsed("List", item("web", kind=7)) == Cluster()


def test_an_item_has_its_own_kind_in_a_list_of_several() -> None:
    found = parsed("List", item("web", kind="Service"), item("web", kind="Pod"), item("one", kind="Node"))
    assert list(found.services) == [("a", "web")]
    assert [node.metadata.name for node in found.nodes.values()] == ["one"]
    assert found.rejected == ()


def test_what_does_not_decode_is_rejected_by_name_and_the_others_are_read() -> None:
    found = parsed("ServiceList", item("bad", spec="x"), item("web"))
    assert list(found.services) == [("a", "web")]
    assert [(bad.kind, bad.key) for bad in found.rejected] == [("Service", ("a", "bad"))]
    assert "str" in found.rejected[0].reason
