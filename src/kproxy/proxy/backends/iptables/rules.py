"""All rules of one family as a value, hooks of the builtin chains included.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.linux.netfilter.rules import Chain
    from kproxy.model.network import Family
    from kproxy.proxy.backends.xtables.rules import ChainName, TableName


class Ruleset(msgspec.Struct, frozen=True, gc=False):
    """All chains of ours in one family, by table and name; the keys of builtin chains are names of `Point`."""

    family: Family
    tables: Mapping[TableName, Mapping[ChainName, Chain]]
