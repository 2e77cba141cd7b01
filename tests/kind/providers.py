"""Clusters for tests: ``@pytest.mark.parametrize("cluster", EVERYWHERE, indirect=True)``."""

from __future__ import annotations

import pytest

MODES = ("nftables", "iptables")
STANDIN = [pytest.param(("standin", mode), marks=pytest.mark.standin, id=f"standin-{mode}") for mode in MODES]
KIND = [pytest.param(("kind", mode), marks=pytest.mark.kind, id=f"kind-{mode}") for mode in MODES]
LOCAL = [pytest.param(("local", mode), marks=pytest.mark.local, id=f"local-{mode}") for mode in MODES]
EVERYWHERE = [*STANDIN, *LOCAL, *KIND]
