"""Broken tools that replace the lab's on a subject's PATH; `test_bad_subjects` judges the resulting subjects.

Texts only: they are written to the subject's own folder, which is the first on its PATH.
"""

from __future__ import annotations

BESIDE = "cd {directory} && chmod +x *-restore; export PATH={directory}:$PATH && exec"
"""Start a program that finds these tools first."""

NEXT = "PATH=${PATH#*:} exec ${0##*/}"
"""Shell prefix that runs the real tool, from the rest of PATH."""

REFUSED = f"""#!/bin/sh
sed '/^-A KUBE-SVC/i -A KUBE-SERVICES -j NO-SUCH-CHAIN' | {NEXT} "$@"
"""
"""A restore with a line that the kernel refuses, wherever a Service has endpoints."""

NOTHING = """#!/bin/sh
exec cat >/dev/null
"""
"""A restore that reports success and writes nothing."""

STOPS = f"""#!/bin/sh
echo again >> restores
[ $(wc -l < restores) -gt 4 ] && kill -STOP $PPID
{NEXT} "$@"
"""
"""A restore during which its caller stands still for ever, from the fifth on: the first Services are served."""

PANIC = """
import sys, time
from urllib.request import urlopen

print("I1122 10:00:00.000000 17 server.go:1] watching Services", flush=True)
while b"clusterIP" not in urlopen("{api_server}/api/v1/services").read():
    time.sleep(0.05)
print("panic: assignment to entry in nil map", "", "goroutine 1 [running]:", "main.main()", sep=chr(10))
sys.exit(2)
"""
"""A daemon that panics at the first Service."""
