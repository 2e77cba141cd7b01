"""How the catalogue writes a clause down: one call a row, one tuple a table."""

from __future__ import annotations

from kproxy.spec.clause import Authority, Clause, Level
from kproxy.spec.outcome import ClauseId

DOCS = Authority.API_DOCS
KEP = Authority.KEP
E2E = Authority.UPSTREAM_E2E
UNIT = Authority.UPSTREAM_UNIT_TEST
OBSERVED = Authority.OBSERVED


def must(id: str, text: str, authority: Authority, *source: str, of: str, since: str = "") -> Clause:
    """A clause that binds; ``of`` lists behaviour IDs, separated by blanks."""
    return _clause(Level.MUST, id, text, authority, source, of, since)


def should(id: str, text: str, authority: Authority, *source: str, of: str, since: str = "") -> Clause:
    """A clause that a proxy needs a reason to depart from."""
    return _clause(Level.SHOULD, id, text, authority, source, of, since)


def may(id: str, text: str, authority: Authority, *source: str, of: str, since: str = "") -> Clause:
    """A clause that leaves several answers open, all of them lawful."""
    return _clause(Level.MAY, id, text, authority, source, of, since)


def _clause(  # noqa: PLR0913, PLR0917  (one parameter for each field)
    level: Level, id: str, text: str, authority: Authority, source: tuple[str, ...], of: str, since: str
) -> Clause:
    return Clause(
        id=ClauseId(id),
        level=level,
        text=text,
        authority=authority,
        source=source,
        behaviours=tuple(of.split()),
        since=since,
    )
