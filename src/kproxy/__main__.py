"""``python -m kproxy``."""

from kproxy.cli import main

raise SystemExit(main())
