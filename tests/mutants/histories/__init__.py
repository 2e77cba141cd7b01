"""Mutants that need a history: an event missed, a retry forgotten, a state believed, writes in the wrong order.

No case of the catalogue is made for them. `tests.mutants.simulate` shows that universes find them.
"""

from __future__ import annotations

from tests.mutants.histories import events, syncs, writes

HISTORIES = (*events.MUTANTS, *syncs.MUTANTS, *writes.MUTANTS)
