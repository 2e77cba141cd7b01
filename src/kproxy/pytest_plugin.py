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
    """Register the catalogue for ``pytest --pyargs kproxy.conformance``."""
    if PACKAGE in args:
        from kproxy.conformance import pytest_items  # noqa: PLC0415 (see above)

        pytest_items.register_plugin(early_config, parser)
