"""Address of a running lab's control socket; imports little, since its clients should start quickly."""

from __future__ import annotations

import os


def control_address(name: str) -> str:
    """Abstract socket (unix(7)) on which a lab of this user listens."""
    return f"\0kproxy-lab-{os.getuid()}-{name}"
