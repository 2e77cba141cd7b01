"""Destinations of results, and writing to them in every form."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from kproxy.conformance.reports import junit, markdown, page, results_document
from kproxy.conformance.reports.comparison import Comparison, compare_runs, differences_document
from kproxy.conformance.reports.results_reader import parse_results
from kproxy.documents import as_yaml, document_text

STANDARD_OUTPUT = "-"
MOST_EVIDENCE_CHARACTERS = 6000
"""Characters of a file of evidence that are shown in the page."""


class OutputError(Exception):
    """A destination that cannot be written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """A path for each form, ``-`` for standard output, empty for none."""

    json: str = ""
    yaml: str = ""
    junit: str = ""
    markdown: str = ""
    html: str = ""

    @property
    def destinations(self) -> Mapping[str, str]:
        """The requested destinations, by the name of the form."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: where for name, where in named.items() if where}

    @property
    def takes_standard_output(self) -> bool:
        """True if a form is written to standard output, so that nothing else may be."""
        return STANDARD_OUTPUT in self.destinations.values()

    def check(self) -> None:
        """Check before the run that files can be written after it.  Raises `OutputError`."""
        for name, where in self.destinations.items():
            place = Path(where)
            if where == STANDARD_OUTPUT:
                continue
            if place.is_dir():
                raise OutputError(f"--{name} {where}: this is a folder; give the path of a file")
            if not (folder := place.absolute().parent).is_dir():
                raise OutputError(
                    f"--{name} {where}: the folder {folder} does not exist; create it, or give a file in another folder"
                )
        if list(self.destinations.values()).count(STANDARD_OUTPUT) > 1:
            raise OutputError(
                "several forms are to go to standard output (-): give all but one the path of a file"
            )

    @property
    def files(self) -> Sequence[Path]:
        """The destinations that are files."""
        return [Path(where) for where in self.destinations.values() if where != STANDARD_OUTPUT]


_RENDER: Mapping[str, Callable[[Comparison], str]] = {
    "junit": junit.render_junit,
    "markdown": markdown.render_markdown,
}


def write_results(result: results_document.Json, outputs: Outputs) -> None:
    """Write the document of one run or of several in all requested forms.  Raises `OutputError`."""
    if not outputs.destinations:
        return
    data = results_document.format_document(result)
    if outputs.json:
        write_bytes(data, outputs.json)
    if outputs.yaml:
        write_bytes(as_yaml(data).encode(), outputs.yaml)
    write_comparison(compare_runs([parse_results(data, outputs.json or "this run")]), outputs)


def write_comparison(comparison: Comparison, outputs: Outputs) -> None:
    """Write a comparison of runs in all requested forms but JSON.  Raises `OutputError`."""
    for name, render in _RENDER.items():
        if where := outputs.destinations.get(name):
            write_bytes(render(comparison).encode(), where)
    if outputs.html:
        write_bytes(
            page.render_html(comparison, _evidence_folders(comparison, outputs.html)).encode(), outputs.html
        )


def write_comparison_document(comparison: Comparison, outputs: Outputs) -> None:
    """Write a comparison as JSON and YAML, where requested.  Raises `OutputError`."""
    for form in ("json", "yaml"):
        if where := outputs.destinations.get(form):
            write_bytes(document_text(differences_document(comparison), form).encode(), where)


def _evidence_folders(comparison: Comparison, where: str) -> Mapping[str, page.EvidenceFolder]:
    """Evidence folders that exist here: the path from the page to each, and the start of the files shown in the page."""
    beside = Path() if where == STANDARD_OUTPUT else Path(where).absolute().parent
    folders = {
        entry.evidence: entry.files
        for column in comparison.columns
        for entry in column.run.results
        if entry.evidence and Path(entry.evidence).is_dir()
    }
    return {
        folder: page.EvidenceFolder(
            at=Path(os.path.relpath(folder, beside)).as_posix(),
            texts={
                name: _read_start(Path(folder, name)) for name in files if name.endswith(page.SHOWN_SUFFIX)
            },
        )
        for folder, files in folders.items()
    }


def _read_start(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_EVIDENCE_CHARACTERS)
    except OSError:
        return ""


def write_bytes(data: bytes, where: str) -> None:
    """Write to a file, or to standard output (``-``).  Raises `OutputError`."""
    if where == STANDARD_OUTPUT:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        Path(where).write_bytes(data)
    except OSError as error:
        raise OutputError(f"{where}: {error.strerror}") from error
