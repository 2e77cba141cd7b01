"""Label and field selectors: who is selected, written by hand; and what is refused."""

from __future__ import annotations

import pytest

from kproxy.lab.apiserver.resources import FIELDS, ResourceKind
from kproxy.lab.apiserver.selectors import parse_fields, parse_labels

LABELS = {
    "none": {},
    "prod": {"env": "prod", "tier": "1"},
    "test": {"env": "test", "tier": "12"},
    "empty": {"env": "", "example.com/owner": "a_b.c-d"},
}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", "none prod test empty"),
        ("env", "prod test empty"),
        ("!env", "none"),
        ("! env", "none"),
        ("env=prod", "prod"),
        ("env==prod", "prod"),
        ("env!=prod", "none test empty"),
        ("env=", "empty"),
        ("env in (prod,test)", "prod test"),
        ("env in ( prod , test )", "prod test"),
        ("env in (prod,)", "prod empty"),
        ("env notin (prod,test)", "none empty"),
        ("env,env notin (prod,test)", "empty"),
        ("env in (prod,test),tier!=1", "test"),
        ("tier>1", "test"),
        ("tier<12", "prod"),
        ("env>1", ""),
        ("example.com/owner=a_b.c-d", "empty"),
        ("!example.com/owner,env=prod", "prod"),
    ],
)
def test_a_label_selector_selects_exactly_these(selector: str, selected: str) -> None:
    terms = parse_labels(selector)
    assert [
        name for name, labels in LABELS.items() if all(t.holds(labels) for t in terms)
    ] == selected.split()


@pytest.mark.parametrize(
    "selector",
    [
        "env=prod,",
        ",env",
        "env in prod",
        "env in (prod",
        "env=a=b",
        "!",
        "env tier",
        "-env",
        "tier>x",
        "env=a b",
        "@",
    ],
)
def test_a_malformed_label_selector_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="unable to parse requirement"):
        parse_labels(selector)


FIELD_VALUES = {
    "vip": {"metadata.name": "web", "spec.clusterIP": "10.96.0.1"},
    "headless": {"metadata.name": "db", "spec.clusterIP": "None"},
    "odd": {"metadata.name": "a,b=c\\d", "spec.clusterIP": ""},
}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", "vip headless odd"),
        ("spec.clusterIP!=None", "vip odd"),
        ("spec.clusterIP=None", "headless"),
        ("spec.clusterIP=", "odd"),
        ("metadata.name==web", "vip"),
        ("spec.clusterIP!=None,metadata.name!=web", "odd"),
        (r"metadata.name=a\,b\=c\\d", "odd"),
    ],
)
def test_a_field_selector_selects_exactly_these(selector: str, selected: str) -> None:
    terms = parse_fields(selector, FIELDS[ResourceKind.SERVICE])
    matching = [name for name, fields in FIELD_VALUES.items() if all(t.holds(fields) for t in terms)]
    assert matching == selected.split()


def test_a_field_that_a_kind_cannot_be_selected_by_is_refused() -> None:
    with pytest.raises(ValueError, match=r"field label not supported: spec\.clusterIP"):
        parse_fields("spec.clusterIP!=None", FIELDS[ResourceKind.NODE])


@pytest.mark.parametrize("selector", ["metadata.name", "=web", "metadata.name=a=b"])
def test_a_malformed_field_selector_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="invalid selector"):
        parse_fields(selector, FIELDS[ResourceKind.SERVICE])
