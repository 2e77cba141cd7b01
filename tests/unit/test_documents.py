"""Errors of YAML in one line."""

from __future__ import annotations

import pytest
import yaml

from kproxy.documents import as_yaml, syntax_error


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("a: [1\n", "line 2, column 1: while parsing a flow sequence, did not find expected ',' or ']'"),
        ("a: b: c\n", "line 1, column 5: mapping values are not allowed"),
        ("\x00", "#x0000: control characters are not allowed"),
    ],
)
def test_an_error_of_yaml_has_its_place_and_what_was_expected(text: str, reported: str) -> None:
    with pytest.raises(yaml.YAMLError) as raised:
        yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    assert reported in syntax_error(raised.value)
    assert "\n" not in syntax_error(raised.value)


def test_yaml_keeps_the_order_of_fields() -> None:
    assert as_yaml(b'{"b": 1, "a": [2]}') == "b: 1\na:\n- 2\n"
