"""Clusters for tests: ``@pytest.mark.parametrize("cluster", EVERYWHERE, indirect=True)``."""

from __future__ import annotations

import pytest

MODES = ("nftables", "iptables")
KIND = [pytest.param(("kind", mode), marks=pytest.mark.kind, id=f"kind-{mode}") for mode in MODES]
K3S = [pytest.param(("k3s", mode), marks=pytest.mark.k3s, id=f"k3s-{mode}") for mode in MODES]
LOCAL = [pytest.param(("local", mode), marks=pytest.mark.local, id=f"local-{mode}") for mode in MODES]
IN_CONTAINERS = [*KIND, *K3S]
EVERYWHERE = [*LOCAL, *IN_CONTAINERS]
