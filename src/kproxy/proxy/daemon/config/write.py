"""Writer of a `Configuration` as a document that loads as the same: for ``--write-config-to``, and to change single fields.

Inverse of `kproxy.proxy.daemon.config.load`; pure.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from kproxy.proxy.daemon.config.configuration import API_VERSION, KIND, Configuration, Section
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.plain_scalars import PlainScalarsQuoted


def configuration_document(config: Configuration) -> dict[str, Any]:
    """KubeProxyConfiguration (v1alpha1) with every field, ready for JSON or YAML."""
    return {"apiVersion": API_VERSION, "kind": KIND, **section_fields(config)}


def section_fields(section: Section) -> dict[str, Any]:
    """Fields of a section under the file's names, in plain types: text for durations, lists for tuples."""
    return {info.encode_name: _plain(getattr(section, info.name)) for info in msgspec.structs.fields(section)}


def to_yaml(config: Configuration) -> str:
    """Document as YAML, keys in alphabetical order as kube-proxy writes them (``cfg.write-config-to``)."""
    document = configuration_document(config)
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=True, default_flow_style=False))


class _Dumper(PlainScalarsQuoted, yaml.SafeDumper):
    """YAML dumper that quotes text which would be read as another type."""


def _plain(value: object) -> object:
    match value:
        case Section():
            return section_fields(value)
        case Duration():
            return str(value)
        case tuple():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case _:
            return value
