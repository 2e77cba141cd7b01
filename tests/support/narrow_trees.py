"""Kproxy whose iptables mode makes the smallest trees: ``python -m tests.support.narrow_trees run --config FILE``.

Choices among endpoints are the smallest too.  With the usual widths few Services are one flat chain.  This is no option of the proxy: nobody else needs it.
"""

from __future__ import annotations

import sys
from unittest import mock

from kproxy.cli import main
from kproxy.proxy.backends.iptables import compile as compiler
from kproxy.proxy.backends.iptables import desired_state
from tests.support.iptables_model import NARROW

if __name__ == "__main__":
    with (
        mock.patch.object(desired_state, "SHAPE", NARROW),
        mock.patch.object(compiler, "MAX_ENDPOINTS_PER_CHAIN", 1),
    ):
        sys.exit(main(sys.argv[1:]))
