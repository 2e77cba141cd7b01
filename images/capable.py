"""Run while the image is built: Python may take CAP_NET_ADMIN, as any user (``images/start.py`` does).

A container that is not root's has no capabilities but those of the files it executes.  The kernel grants this one
only where the container may have it (``capabilities.add``) and privileges may be gained at all.
Layout: linux/capability.h, ``struct vfs_cap_data`` revision 2.
"""

import os
import struct
from pathlib import Path

NET_ADMIN, REVISION_2 = 12, 0x02000000
"""Without the flag that makes it effective at once: a program with that does not start at all where it is not granted."""

os.setxattr(
    "/usr/bin/python3.11", "security.capability", struct.pack("<5I", REVISION_2, 1 << NET_ADMIN, 0, 0, 0)
)
Path(__file__).unlink()
