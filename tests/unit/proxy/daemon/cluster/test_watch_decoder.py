import msgspec
import pytest

from kproxy.model.api import EndpointSlice, Node, Rejected, Service
from kproxy.proxy.daemon.cluster.store import Kind, Removed
from kproxy.proxy.daemon.cluster.watch_decoder import Bookmark, WatchDecoder, WatchedChange, WatchError

encode = msgspec.json.encode


def service(name: str, version: str = "7", **spec: object) -> dict[str, object]:
    return {
        "metadata": {"namespace": "default", "name": name, "resourceVersion": version},
        "spec": {"clusterIP": "10.0.0.1", **spec},
    }


BAD = service("bad", ports="none")


def listing(*items: object) -> bytes:
    return encode({"kind": "ServiceList", "metadata": {"resourceVersion": "9"}, "items": list(items)})


def lines(*events: tuple[str, object]) -> bytes:
    return b"\n".join(encode({"type": kind, "object": item}) for kind, item in events) + b"\n"


def names(items: object) -> list[str]:
    return [item.metadata.name for item in items]  # type: ignore[attr-defined]


def test_a_list_has_its_objects_and_its_version() -> None:
    listed = WatchDecoder(Service).decode_list(listing(service("a"), service("b")))
    assert (names(listed.objects), listed.rejected, listed.version) == (["a", "b"], (), "9")


def test_versions_of_a_node_are_not_read() -> None:
    """``cfg.nodeversion``: kube-proxy's is not even set."""
    addresses = [{"type": "InternalIP", "address": "192.0.2.1"}]
    plain = {"metadata": {"name": "a"}, "status": {"addresses": addresses}}
    with_versions = {
        **plain,
        "status": {
            "addresses": addresses,
            "nodeInfo": {"kubeProxyVersion": "v1.0.0", "kubeletVersion": "v1.0.0"},
        },
    }
    assert (
        WatchDecoder(Node).decode_list(listing(with_versions)).objects
        == WatchDecoder(Node).decode_list(listing(plain)).objects
    )


def test_an_empty_list_of_a_go_server_may_be_null() -> None:
    assert (
        WatchDecoder(Service).decode_list(b'{"metadata":{"resourceVersion":"9"},"items":null}').objects == ()
    )


def test_a_bad_object_in_a_list_is_set_aside_and_costs_no_other() -> None:
    listed = WatchDecoder(Service).decode_list(listing(service("a"), BAD, service("b")))
    assert names(listed.objects) == ["a", "b"]
    (bad,) = listed.rejected
    assert bad.key == ("default", "bad")
    assert "ports" in bad.reason


def test_bytes_that_are_no_text_are_set_aside_with_their_object_only() -> None:
    body = listing(service("a"), service("b")).replace(b'"name":"b"', b'"name":"\xff"')
    listed = WatchDecoder(Service).decode_list(body)
    assert names(listed.objects) == ["a"]
    assert len(listed.rejected) == 1


def test_what_is_no_list_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        WatchDecoder(Service).decode_list(b"<html>")


def test_changes_carry_object_and_version() -> None:
    added, deleted = WatchDecoder(Service).decode_events(
        lines(("ADDED", service("a", "1")), ("DELETED", service("b", "2")))
    )
    assert isinstance(added, WatchedChange)
    assert isinstance(added.change, Service)
    assert (added.change.metadata.name, added.version) == ("a", "1")
    assert deleted == WatchedChange(Removed(("default", "b")), "2")


NOT_ONLY_ADDED = (
    ("MODIFIED", service("a")),
    ("DELETED", service("a")),
    ("BOOKMARK", {"metadata": {"resourceVersion": "12"}}),
    ("ERROR", {"metadata": {}, "code": 410}),
    ("ADDED", BAD),
    ("ADDED", service("a\nb")),
)


@pytest.mark.parametrize("other", NOT_ONLY_ADDED, ids=lambda event: event[0])
def test_lines_that_do_nothing_but_add_objects_are_distinguished_from_all_others(
    other: tuple[str, object],
) -> None:
    found = WatchDecoder(Service).decode_added(lines(("ADDED", service("a")), ("ADDED", service("b"))))
    assert found is not None
    assert list(found) == [("default", "a"), ("default", "b")]
    assert names(found.values()) == ["a", "b"]
    assert WatchDecoder(Service).decode_added(lines(("ADDED", service("a")), other)) is None


def test_a_bad_object_among_events_is_set_aside_with_its_version() -> None:
    before, bad, after = WatchDecoder(Service).decode_events(
        lines(("ADDED", service("a")), ("MODIFIED", BAD), ("ADDED", service("b")))
    )
    assert isinstance(bad, WatchedChange)
    assert isinstance(bad.change, Rejected)
    assert (bad.change.key, bad.version) == (("default", "bad"), "7")
    assert isinstance(before, WatchedChange)
    assert isinstance(after, WatchedChange)
    assert names([before.change, after.change]) == ["a", "b"]


def test_deleting_a_bad_object_is_a_deletion() -> None:
    assert WatchDecoder(Service).decode_events(lines(("DELETED", BAD))) == [
        WatchedChange(Removed(("default", "bad")), "7")
    ]


@pytest.mark.parametrize("kind", [Service, EndpointSlice, Node])
def test_a_bookmark_is_no_object(kind: Kind) -> None:
    # As a real server sends it: an object of the kind with null fields.
    body = {
        "metadata": {"resourceVersion": "12", "creationTimestamp": None},
        "endpoints": None,
        "ports": None,
        "spec": {},
    }
    assert WatchDecoder(kind).decode_events(lines(("BOOKMARK", body))) == [Bookmark("12", complete=False)]


def test_the_bookmark_that_ends_the_initial_events_is_known_by_its_annotation() -> None:
    metadata = {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert WatchDecoder(Service).decode_events(lines(("BOOKMARK", {"metadata": metadata}))) == [
        Bookmark("12", complete=True)
    ]


@pytest.mark.parametrize("kind", [Service, EndpointSlice, Node])
def test_an_error_is_a_failure_with_its_code(kind: Kind) -> None:
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "message": "too old", "code": 410}
    first, second = WatchDecoder(kind).decode_events(lines(("BOOKMARK", {"metadata": {}}), ("ERROR", status)))
    assert isinstance(first, Bookmark)
    assert second == WatchError(410, "too old")


def test_an_unknown_event_is_a_failure() -> None:
    assert isinstance(WatchDecoder(Service).decode_events(lines(("SURPRISE", {})))[0], WatchError)


def test_lines_that_are_no_events_are_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        WatchDecoder(Service).decode_events(b"upstream connect error\n")
