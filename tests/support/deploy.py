"""Renderer of the manifests in ``deploy/``: the part of `kubectl kustomize` that they use, a base and patches of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
BASE, OVERLAYS = DEPLOY / "base", sorted((DEPLOY / "overlays").iterdir())

Document = dict[str, Any]
Objects = dict[tuple[str, str], Document]
"""Documents by kind and name."""


def documents(path: Path) -> list[Document]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def key(document: Document) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def base() -> Objects:
    (kustomization,) = documents(BASE / "kustomization.yaml")
    files = [BASE / name for name in kustomization["resources"]]
    assert {*files, BASE / "kustomization.yaml"} == set(BASE.iterdir()), "a file that no kustomization names"
    return {key(document): document for file in files for document in documents(file)}


def merged(old: Document, patch: Document) -> Document:
    """A strategic merge of maps; lists are replaced."""
    return {
        name: merged(old[name], patch[name])
        if isinstance(old.get(name), dict) and isinstance(patch.get(name), dict)
        else patch.get(name, old.get(name))
        for name in old | patch
    }


def rendered(overlay: Path) -> Objects:
    """The documents of an overlay: its base with its patches applied."""
    (kustomization,) = documents(overlay / "kustomization.yaml")
    assert kustomization.keys() == {"apiVersion", "kind", "resources", "patches"}
    assert [(overlay / path).resolve() for path in kustomization["resources"]] == [BASE]
    found = base()
    for patch in kustomization["patches"]:
        (document,) = documents(overlay / patch["path"])
        found[key(document)] = merged(found[key(document)], document)
    return found
