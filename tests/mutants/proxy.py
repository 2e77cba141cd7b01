"""Kproxy with one defect: ``python -m tests.mutants.proxy MUTANT run --config FILE``; ``none``: without a defect."""

from __future__ import annotations

import sys

from kproxy.cli import main
from tests.mutants.mutant import applied
from tests.mutants.table import BY_NAME

if __name__ == "__main__":
    _, name, *arguments = sys.argv
    with applied(BY_NAME[name]):
        sys.exit(main(arguments))
