"""Tests run against a mutant: ``python -m tests.mutants.tested MUTANT NODE``; exits with pytest's status."""

from __future__ import annotations

import sys
from unittest import mock

import pytest

from kproxy.conformance.subjects import subject
from tests.mutants.judge import subject_of
from tests.mutants.mutant import applied
from tests.mutants.table import BY_NAME

if __name__ == "__main__":
    _, name, *nodes = sys.argv
    wrong = BY_NAME[name]
    with applied(wrong), mock.patch.object(subject, "load_subject", return_value=subject_of(wrong)):
        quiet = ("-q", "--no-header", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=thorough")
        loaded = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # kproxy, which is a plugin as well
        sys.exit(pytest.main([*quiet, *loaded, *nodes]))
