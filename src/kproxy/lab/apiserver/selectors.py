"""Label and field selectors: parsed once, evaluated for every object and every change. Pure.

Grammar: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors and
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kproxy.lab.apiserver.versions import Version


class Operator(enum.Enum):
    """Operator of a requirement; the value is the selector's spelling."""

    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    IN = "in"
    NOT_IN = "notin"
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector; all terms of a selector must hold."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """True if these labels satisfy the term; an absent key satisfies NOT_IN."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.GREATER | Operator.LESS:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        (bound,) = self.values
        if value is None or not _INTEGER.fullmatch(value):
            return False
        return int(value) > int(bound) if self.operator is Operator.GREATER else int(value) < int(bound)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of a list or a watch: by namespace (or all), by labels, by fields."""

    namespace: str | None = None
    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def shows(self, version: Version) -> bool:
        """True if this version of an object is selected."""
        return (
            (self.namespace is None or version.key[0] == self.namespace)
            and all(term.holds(version.labels) for term in self.labels)
            and all(term.holds(version.fields) for term in self.fields)
        )

    @property
    def everything(self) -> bool:
        """True if it selects every object."""
        return self == Selection()


# --------------------------------------------------------------------------- labels

_INTEGER = re.compile(r"-?\d+")
_TOKEN = re.compile(r"\s*(?:([A-Za-z0-9_./-]+)|(==|!=|[=!,()<>]))")
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_EQUALITY = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN}
_ORDER = {">": Operator.GREATER, "<": Operator.LESS}
_SETS = {"in": Operator.IN, "notin": Operator.NOT_IN}


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Terms of a ``labelSelector``; raises ValueError for a malformed one."""
    return _LabelParser(text).selector()


class _LabelParser:
    """Recursive descent over tokens; each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)

    def selector(self) -> tuple[Requirement, ...]:
        terms: list[Requirement] = []
        while self._tokens:
            terms.append(self._requirement())
            if self._tokens:
                self._expect(",")
                if not self._tokens:
                    raise self._error("a requirement after ','")
        return tuple(terms)

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), Operator.DOES_NOT_EXIST)
        key = self._key()
        match self._peek():
            case "" | ",":
                return Requirement(key, Operator.EXISTS)
            case "in" | "notin":
                return Requirement(key, _SETS[self._next()], self._set())
            case "=" | "==" | "!=":
                return Requirement(key, _EQUALITY[self._next()], frozenset({self._value()}))
            case "<" | ">":
                return Requirement(key, _ORDER[self._next()], frozenset({self._number()}))
            case _:
                raise self._error("an operator")

    def _set(self) -> frozenset[str]:
        self._expect("(")
        values = {self._value()}
        while self._peek() == ",":
            self._next()
            values.add(self._value())
        self._expect(")")
        return frozenset(values)

    def _key(self) -> str:
        key = self._next()
        if not _KEY.fullmatch(key):
            raise self._error("a label key")
        return key

    def _value(self) -> str:
        if self._peek() in {"", ",", ")"}:
            return ""
        value = self._next()
        if not _VALUE.fullmatch(value):
            raise self._error("a label value")
        return value

    def _number(self) -> str:
        number = self._value()
        if not _INTEGER.fullmatch(number):
            raise self._error("an integer")
        return number

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _next(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._error(f"'{token}'")

    def _error(self, wanted: str) -> ValueError:
        return ValueError(f"unable to parse requirement: expected {wanted} in {self._text!r}")


def _tokens(text: str) -> list[str]:
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"unable to parse requirement: unexpected character in {text!r}")
        tokens.append(match[1] or match[2])
        position = match.end()
    return tokens


# --------------------------------------------------------------------------- fields

_FIELD_TERM = re.compile(r"((?:[^\\,=!]|!(?!=))+)(!=|==|=)((?:[^\\,=]|\\[\\,=])*)")
_FIELD_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*,")
_ESCAPE = re.compile(r"\\([\\,=])")


def parse_fields(text: str, known: Collection[str]) -> tuple[Requirement, ...]:
    """Terms of a ``fieldSelector`` over the field labels of a kind; raises ValueError for a malformed one."""
    terms = []
    for term in filter(None, _split(text)):
        match = _FIELD_TERM.fullmatch(term)
        if match is None:
            raise ValueError(f"invalid selector: {text!r}; can't understand {term!r}")
        if match[1] not in known:
            raise ValueError(f"field label not supported: {match[1]}")
        value = _ESCAPE.sub(r"\1", match[3])
        terms.append(Requirement(match[1], _EQUALITY[match[2]], frozenset({value})))
    return tuple(terms)


def _split(text: str) -> list[str]:
    parts, start = [], 0
    for separator in _FIELD_SEPARATOR.finditer(text):
        parts.append(text[start : separator.end() - 1])
        start = separator.end()
    return [*parts, text[start:]]
