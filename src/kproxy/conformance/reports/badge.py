"""Badge of a verdict: an SVG of its own, and the JSON of a shields.io endpoint.  Pure.

https://shields.io/badges/endpoint-badge
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from kproxy.conformance.reports.verification import Verification

LABEL = "kproxy conformance"
_COLOURS = {"passed": "brightgreen", "failed": "red", "partial": "yellow", "invalid": "lightgrey"}
_HEX = {"brightgreen": "#2f7d31", "red": "#b3261e", "yellow": "#8a6100", "lightgrey": "#5f6368"}
"""Colours on which white text has a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3)."""
_CHARACTER, _MARGIN, _HEIGHT = 6.6, 12, 20


def badge_message(found: Verification) -> tuple[str, str]:
    """Text of the right half, and one of `_COLOURS`: the worst verdict of the runs."""
    if found.problems:
        return "not verified", "invalid"
    worst = min(found.verdicts.values(), key=lambda verdict: (verdict.word == "passed", len(verdict.passed)))
    modes = f" in {len(found.verdicts)} modes" if len(found.verdicts) > 1 else ""
    return f"core {len(worst.passed)}/{worst.total}{modes}", worst.word


def shields_endpoint(found: Verification) -> Mapping[str, Any]:
    """The JSON that shields.io makes a badge of."""
    message, state = badge_message(found)
    return {"schemaVersion": 1, "label": LABEL, "message": message, "color": _COLOURS[state]}


def badge_svg(found: Verification) -> str:
    """The badge as SVG, with its text as title for those who cannot see it."""
    message, state = badge_message(found)
    left, right = (round(len(text) * _CHARACTER) + _MARGIN for text in (LABEL, message))
    text = f"{LABEL}: {message}"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" aria-label="{escape(text)}">
<title>{escape(text)}</title>
<rect width="{left + right}" height="{_HEIGHT}" rx="3" fill="#444"/>
<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left}z" fill="{_HEX[_COLOURS[state]]}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2:g}" y="14">{escape(LABEL)}</text>
<text x="{left + right / 2:g}" y="14">{escape(message)}</text>
</g>
</svg>
"""
