"""Values of YAML's plain scalars as kube-proxy reads them: YAML 1.1 of go-yaml 2, then numbers as JSON has them.

Between PyYAML, whose own rules are others (``1e6`` is text to it, ``y`` too, ``2024-01-01`` a date), and
`kproxy.proxy.daemon.config.load` and `kproxy.proxy.daemon.config.write`. Pure.

Source: https://github.com/yaml/go-yaml/blob/v2.4.3/resolve.go
"""

from __future__ import annotations

import math
import re

import yaml

_TAG = "tag:yaml.org,2002:"
_BOOL, _INT, _FLOAT, _NULL, _TEXT = (f"{_TAG}{name}" for name in ("bool", "int", "float", "null", "str"))


def _spellings(*lower: str) -> tuple[str, ...]:
    return tuple(text for name in lower for text in (name, name.capitalize(), name.upper()))


_NAMED: dict[str, tuple[str, bool | float | None]] = {
    **dict.fromkeys(_spellings("y", "yes", "true", "on"), (_BOOL, True)),
    **dict.fromkeys(_spellings("n", "no", "false", "off"), (_BOOL, False)),
    **dict.fromkeys(("", "~", *_spellings("null")), (_NULL, None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), (_FLOAT, math.nan)),
    **{f"{sign}{text}": (_FLOAT, math.inf) for sign in ("", "+") for text in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), (_FLOAT, -math.inf)),
}
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGERS = range(-(2**63), 2**64)
_LARGEST_INTEGRAL = 1e21
"""Size from which on JSON of Go has floats with an exponent, which is no integer to it."""


def plain_scalar(text: str) -> tuple[str, bool | int | float | str | None]:
    """Tag and value of an unquoted scalar; a float that is whole has an `int` as its value, as it has in JSON."""
    if text in _NAMED:
        return _NAMED[text]
    if text[0] in "+-.0123456789":
        digits = text if text[0] == "." else text.replace("_", "")
        number = _integer(digits)
        if number is not None:
            return _INT, number
        if _NUMBER.fullmatch(digits) and not math.isinf(value := float(digits)):
            return _FLOAT, int(value) if value.is_integer() and abs(value) < _LARGEST_INTEGRAL else value
    return _TEXT, text


def _integer(text: str) -> int | None:
    """Integer of 64 bits in Go's syntax: a leading zero makes it octal."""
    found = _INTEGER.fullmatch(text)
    if found is None or found.lastgroup is None:
        return None
    number = int(found["sign"] + found[found.lastgroup], _BASES[found.lastgroup])
    return number if number in _INTEGERS else None


SCALAR_TAGS = (_BOOL, _INT, _FLOAT, _NULL)
"""Tags of values that `construct_plain` makes."""


def construct_plain(_loader: object, node: yaml.ScalarNode) -> bool | int | float | str | None:
    """PyYAML's constructor of a scalar whose tag is one of `SCALAR_TAGS`."""
    return plain_scalar(node.value)[1]


class PlainScalars:
    """Mixin of a PyYAML loader: its plain scalars are `plain_scalar`'s."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        """Tag of a node that has none of its own."""
        if kind is yaml.ScalarNode and implicit[0] and value != "<<":
            return plain_scalar(value)[0]
        return str(super().resolve(kind, value, implicit))  # type: ignore[misc]


class PlainScalarsQuoted:
    """Mixin of a PyYAML dumper: text that `plain_scalar` or PyYAML would take for another type is quoted."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        """Tag that a node would have if it were written without one."""
        tag = str(super().resolve(kind, value, implicit))  # type: ignore[misc]
        return plain_scalar(value)[0] if tag == _TEXT and implicit[0] else tag
