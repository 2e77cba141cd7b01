"""The plugin that pytest loads (entry point ``pytest11``): inactive unless ``kproxy.conformance`` is an argument.

Inactive it has no options and imports nothing else of kproxy, so that other test runs are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

PACKAGE = "kproxy.conformance"


def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: Sequence[str]
) -> None:
    """Register the catalogue for ``pytest --pyargs kproxy.conformance``, or for node IDs such as ``kproxy.conformance::CASE``."""
    chosen = [item for item in args if item.partition("::")[0] == PACKAGE]
    if chosen:
        from kproxy.conformance import pytest_items  # noqa: PLC0415 (see above)

        names = frozenset(item.partition("::")[2] for item in chosen) - {""}
        if isinstance(
            args, list
        ):  # node IDs, as pytest prints them: it refuses those of a package, so it gets the package
            args[:] = ["--pyargs", PACKAGE, *(item for item in args if item not in {*chosen, "--pyargs"})]
        pytest_items.register_plugin(early_config, parser, names if PACKAGE not in chosen else frozenset())
