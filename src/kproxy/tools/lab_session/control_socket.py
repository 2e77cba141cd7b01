"""Where a running lab and the commands that visit it meet; light, since a visit should be quick."""

from __future__ import annotations

import os


def control_address(name: str) -> str:
    """The abstract socket (unix(7)) on which a lab of this user listens."""
    return f"\0kproxy-lab-{os.getuid()}-{name}"
