"""``kproxy spec show``: an ID in, its entry out; `kproxy.cli` parses its arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kproxy.documents import TEXT, print_document
from kproxy.spec.topics import TOPICS
from kproxy.tools.reference.entries import Item, ReferenceEntry, entries, suggestions

EXIT_UNKNOWN_ID = 2
MOST_SHOWN = 6
"""Largest number of items of a section that the text shows; of a topic's all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """The arguments of the command line; without an ``id`` the topics are listed."""

    id: str
    form: str


def show(options: ShowOptions) -> int:
    """Print the entry of an ID; 0, or 2 when nothing has it."""
    if not options.id:
        return _list_topics(options.form)
    found = list(entries(options.id))
    if not found:
        sys.stderr.write(_unknown(options.id))
        return EXIT_UNKNOWN_ID
    if options.form == TEXT:
        sys.stdout.write("\n".join(format_entry(entry) for entry in found))
    else:
        documents = [entry_document(entry) for entry in found]
        print_document({"schema": "kproxy-spec-show/2", "entries": documents}, options.form)
    return 0


def _list_topics(form: str) -> int:
    if form == TEXT:
        sys.stdout.writelines(f"{topic.name:16} {topic.about}\n" for topic in TOPICS.values())
    else:
        topics = [{"name": topic.name, "about": topic.about} for topic in TOPICS.values()]
        print_document({"schema": "kproxy-spec-topics/1", "topics": topics}, form)
    return 0


def _unknown(id: str) -> str:
    close = "".join(f"  {name}: {sentence}\n" for name, sentence in suggestions(id))
    hint = f"near it:\n{close}" if close else "`kproxy spec show` lists the topics\n"
    return f"kproxy spec show: no clause, case, behaviour, regression or topic has the ID {id}; {hint}"


def entry_document(entry: ReferenceEntry) -> dict[str, Any]:
    """An entry as JSON has it: every item of every section."""
    return {
        "kind": entry.kind,
        "id": entry.id,
        "sentence": entry.sentence,
        "place": str(entry.place),
        **entry.facts,
        **{name: [_item_document(item) for item in items] for name, items in entry.sections.items()},
    }


def _item_document(item: Item) -> dict[str, str]:
    return {
        **({"text": item.text} if item.text else {}),
        **({"place": str(item.place)} if item.place else {}),
    }


def format_entry(entry: ReferenceEntry) -> str:
    """An entry as text: of long sections the first items, and how many more there are."""
    return "\n".join(_lines(entry)) + "\n"


def _lines(entry: ReferenceEntry) -> Iterator[str]:
    yield f"{entry.kind} {entry.id}  {entry.place}"
    yield f"  {entry.sentence}"
    yield from (f"  {name}: {value}" for name, value in entry.facts.items())
    for name, items in entry.sections.items():
        most = len(items) if entry.kind == "topic" else MOST_SHOWN
        yield f"{name}:" if items else f"{name}: none"
        yield from (f"  {_with_place(item)}" for item in items[:most])
        if len(items) > most:
            yield f"  {len(items) - most} more with -o json"


def _with_place(item: Item) -> str:
    return "  ".join(filter(None, (str(item.place) if item.place else "", item.text)))
