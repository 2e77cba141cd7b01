"""Discovery documents, made from the resource table. Pure.

Shapes: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api (unaggregated)
"""

from __future__ import annotations

from kproxy.lab.apiserver.resources import RESOURCES, ApiResource, Document

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_GIT_VERSION = "v1.36.2+kproxy-lab"


def version_document() -> Document:
    """``/version``: the release whose behaviour is emulated."""
    major, minor = _GIT_VERSION[1:].split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": _GIT_VERSION, "platform": "linux/amd64"}


def core_versions() -> Document:
    """``/api``: the versions of the core group."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list() -> Document:
    """``/apis``: all other groups."""
    names = sorted({resource.group for resource in RESOURCES} - {""})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def group(name: str) -> Document | None:
    """``/apis/<group>``; None when there is no such group."""
    if not name or all(resource.group != name for resource in RESOURCES):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def resource_list(name: str, group_version: str) -> Document | None:
    """``/api/v1`` and ``/apis/<group>/<version>``; None when there is no such version."""
    served = [r for r in RESOURCES if (r.group, r.version) == (name, group_version)]
    if not served:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": [_resource(resource) for resource in served],
    }


def _group(name: str) -> Document:
    versions = sorted({resource.version for resource in RESOURCES if resource.group == name})
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[-1]}


def _resource(resource: ApiResource) -> Document:
    return {
        "name": resource.plural,
        "singularName": resource.kind.value.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind.value,
        "verbs": _VERBS,
        "shortNames": list(resource.short_names),
    }
