"""The plugin that pytest finds (entry point ``pytest11``): asleep until somebody asks for ``kproxy.conformance``.

It has no options and imports nothing then, so that no other test run pays for it or meets a word of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

PACKAGE = "kproxy.conformance"


def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: Sequence[str]
) -> None:
    """Wake up for ``pytest --pyargs kproxy.conformance``."""
    if PACKAGE in args:
        from kproxy.conformance import pytest_items  # noqa: PLC0415 (see above)

        pytest_items.register_plugin(early_config, parser)
