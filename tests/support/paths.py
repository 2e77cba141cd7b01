"""The repository's folders, for tests that read documents, manifests and examples."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
