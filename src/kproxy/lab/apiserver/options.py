"""Query of a list or watch request, checked as an API server checks it. Pure.

resourceVersion semantics: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
sendInitialEvents: KEP-3157.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kproxy.lab.apiserver.resources import FIELDS
from kproxy.lab.apiserver.routes import ResourcePath
from kproxy.lab.apiserver.selectors import Operator, Requirement, Selection, parse_fields, parse_labels
from kproxy.lab.apiserver.status import bad_request, invalid_option

T = TypeVar("T")


class ResourceVersionMatch(enum.Enum):
    """Values of ``resourceVersionMatch``."""

    EXACT = "Exact"
    NOT_OLDER_THAN = "NotOlderThan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Options of a list or watch; ``revision`` None when no resourceVersion was given."""

    selection: Selection
    revision: int | None
    match: ResourceVersionMatch | None
    limit: int
    continue_token: str
    bookmarks: bool
    send_initial_events: bool | None
    timeout_seconds: int | None

    @property
    def watch_list(self) -> bool:
        """True if a watch is to begin with the present objects and a bookmark after them (WatchList)."""
        return bool(self.send_initial_events)

    @property
    def from_present(self) -> bool:
        """True if a watch is to begin with the present objects."""
        return self.watch_list or (not self.revision and self.send_initial_events is None)


def is_watch(query: Mapping[str, str]) -> bool:
    """True if a request is for a watch."""
    return bool(_boolean(query, "watch"))


def parse_options(
    query: Mapping[str, str], place: ResourcePath, *, watch: bool, watch_list: bool
) -> ListOptions:
    """Options of a list or watch; raises `ApiError` 400 or 422.

    ``watch_list``: the server supports sendInitialEvents; if not, it is refused with 422.
    """
    options = ListOptions(
        selection=_selection(query, place),
        revision=_number(query, "resourceVersion"),
        match=_match(query),
        limit=_number(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        bookmarks=bool(_boolean(query, "allowWatchBookmarks")),
        send_initial_events=_boolean(query, "sendInitialEvents"),
        timeout_seconds=_number(query, "timeoutSeconds"),
    )
    if watch:
        _check_watch(options, watch_list=watch_list)
    else:
        _check_list(options)
    return options


def _check_watch(options: ListOptions, *, watch_list: bool) -> None:
    if options.send_initial_events is None:
        if options.match is not None:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise invalid_option("resourceVersionMatch", why)
    elif not watch_list:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise invalid_option("sendInitialEvents", why)
    elif options.match is not ResourceVersionMatch.NOT_OLDER_THAN:
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid_option("resourceVersionMatch", why)


def _check_list(options: ListOptions) -> None:
    if options.send_initial_events is not None:
        raise invalid_option("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if options.match is None:
        if options.continue_token and options.revision:
            raise bad_request("specifying resource version is not allowed when using continue")
        return
    if options.revision is None:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise invalid_option("resourceVersionMatch", why)
    if options.continue_token:
        raise invalid_option(
            "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
        )
    if options.match is ResourceVersionMatch.EXACT and options.revision == 0:
        why = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        raise invalid_option("resourceVersionMatch", why)


def _selection(query: Mapping[str, str], place: ResourcePath) -> Selection:
    labels = _or_400(parse_labels, query.get("labelSelector", ""))
    fields = _or_400(
        lambda text: parse_fields(text, FIELDS[place.resource.kind]), query.get("fieldSelector", "")
    )
    if place.name is not None:
        fields += (Requirement("metadata.name", Operator.IN, frozenset({place.name})),)
    return Selection(place.namespace if place.resource.namespaced else None, labels, fields)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise bad_request(f"Invalid value: {text!r}: {name} is no number")
    return int(text)


def _boolean(query: Mapping[str, str], name: str) -> bool | None:
    text = query.get(name)
    return None if text is None else text.lower() not in {"0", "false"}


def _match(query: Mapping[str, str]) -> ResourceVersionMatch | None:
    text = query.get("resourceVersionMatch", "")
    try:
        return ResourceVersionMatch(text) if text else None
    except ValueError:
        raise invalid_option("resourceVersionMatch", f"unknown value {text!r}") from None


def _or_400(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise bad_request(str(error)) from error
