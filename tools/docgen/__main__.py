"""``python -m tools.docgen``."""

import sys

from tools.docgen.generate import main

sys.exit(main())
