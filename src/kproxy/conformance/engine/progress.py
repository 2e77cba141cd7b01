"""Progress of a run, for its live line: cases done of all, failures so far, time left.  The verdicts do not depend on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class RunProgress:
    """Counts of a run; ``total``: number of cases that are run; a case counts when its lab has ended."""

    total: int = 0
    done: int = 0
    failed: int = 0
    begun: float = field(default_factory=time.monotonic)

    def add(self, done: int, failed: int) -> None:
        """Count the cases of a lab that has ended."""
        self.done += done
        self.failed += failed

    def __str__(self) -> str:
        """Text for the live line; the time left is that of the cases done so far, in proportion."""
        parts = [f"{self.done} of {self.total} cases"]
        parts += [f"{self.failed} failed"] if self.failed else []
        if 0 < self.done < self.total:
            seconds = (time.monotonic() - self.begun) * (self.total - self.done) / self.done
            parts.append(f"about {seconds:.0f} s left")
        return ", ".join(parts)
