"""Data that a command prints for programs, JSON or YAML from the same value, and what is wrong with YAML that it reads.

The convention of all commands is ``-o FORM --output FILE``; `kproxy.cli.output` opens the file.
"""

from __future__ import annotations

import sys

import msgspec
import yaml

TEXT = "text"


def syntax_error(error: yaml.YAMLError) -> str:
    """Text of an error of YAML in one line: where it is, counted from 1, and what was expected there."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + ", ".join(filter(None, (error.context, error.problem)))


def print_document(document: object, form: str) -> None:
    """Print a value to standard output as ``json`` or ``yaml``, indented."""
    sys.stdout.write(document_text(document, form))
    sys.stdout.flush()


def document_text(document: object, form: str) -> str:
    """Text of a value as ``json`` or ``yaml``, indented."""
    data = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    return as_yaml(data) if form == "yaml" else data.decode()


def as_yaml(json: bytes) -> str:
    """YAML of a JSON document, with the fields in the same order."""
    return yaml.safe_dump(msgspec.json.decode(json), sort_keys=False, allow_unicode=True, width=120)
