"""Log lines in both formats, and who may write how much."""

import json
import logging
import re
import subprocess
import sys

import pytest

from kproxy.proxy.daemon.config.configuration import Logging, VModule
from kproxy.proxy.daemon.logs import JsonFormatter, TextFormatter, VerbosityFilter, key_values


def record(
    level: int = logging.INFO, message: str = "logged %s", *of: object, **extra: object
) -> logging.LogRecord:
    made = logging.LogRecord(
        "kproxy.proxy.daemon.cluster.store",
        level,
        "/x/kproxy/proxy/daemon/cluster/store.py",
        12,
        message,
        of,
        None,
    )
    made.__dict__.update(key_values(**extra))
    return made


def test_text_has_the_head_of_klog_and_values_at_the_end() -> None:
    line = TextFormatter().format(record(logging.WARNING, "logged %s", "so", node='a"b', count=3))
    assert re.fullmatch(
        r'W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ store\.py:12\] logged so node="a\\"b" count=3', line
    )


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "F"),
    ],
)
def test_text_begins_with_the_letter_of_its_level(level: int, letter: str) -> None:
    assert TextFormatter().format(record(level, "x"))[0] == letter


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_what_an_object_is_called_makes_no_line_of_its_own(formatter: logging.Formatter) -> None:
    line = formatter.format(
        record(logging.INFO, "Service %s", "a\nE0101 00:00:00 forged\x1b[2J", name="b\nc")
    )
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


def test_json_has_the_members_that_collectors_know() -> None:
    line = json.loads(JsonFormatter().format(record(logging.INFO, "logged %s", "so", node="a")))
    assert line.pop("ts") > 1_500_000_000_000
    assert line == {"caller": "cluster/store.py:12", "msg": "logged so", "v": 0, "node": "a"}


def test_json_marks_errors_by_their_lack_of_a_verbosity() -> None:
    assert "v" not in json.loads(JsonFormatter().format(record(logging.ERROR, "x")))
    assert json.loads(JsonFormatter().format(record(logging.DEBUG, "x")))["v"] == 4


def test_a_traceback_is_kept_in_both() -> None:
    made = record(logging.ERROR, "broken")
    try:
        int("inner")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: invalid literal" in TextFormatter().format(made)
    assert "ValueError: invalid literal" in json.loads(JsonFormatter().format(made))["stacktrace"]


@pytest.mark.parametrize(("verbosity", "passes"), [(0, False), (3, False), (4, True), (9, True)])
def test_verbosity_lets_debugging_pass_from_4_on(verbosity: int, passes: bool) -> None:  # noqa: FBT001 - a table
    assert VerbosityFilter(Logging(verbosity=verbosity)).filter(record(logging.DEBUG, "x")) is passes
    assert VerbosityFilter(Logging(verbosity=verbosity)).filter(record(logging.INFO, "x"))


def test_the_first_pattern_that_matches_decides_for_a_module() -> None:
    patterns = (VModule(file_pattern="st*", verbosity=4), VModule(file_pattern="store", verbosity=0))
    threshold = VerbosityFilter(Logging(vmodule=patterns))
    assert threshold.lowest == logging.DEBUG
    assert threshold.filter(record(logging.DEBUG, "x"))
    assert not VerbosityFilter(Logging(vmodule=patterns[::-1])).filter(record(logging.DEBUG, "x"))
    assert not VerbosityFilter(Logging(vmodule=(VModule(file_pattern="watch", verbosity=4),))).filter(
        record(logging.DEBUG, "x")
    )


@pytest.mark.parametrize(
    ("options", "out", "err"),
    [("{}", "", "II EE"), ("{'text': {'splitStream': True}}", "II", "EE")],
    ids=["one stream", "split"],
)
def test_all_goes_to_standard_error_unless_the_stream_is_split(options: str, out: str, err: str) -> None:
    program = (
        "import logging; from kproxy.proxy.daemon import logs; from kproxy.proxy.daemon.config.configuration import Logging;"
        f"logs.configure_logging(Logging(options={options})); log = logging.getLogger('kproxy');"
        "log.debug('DD'); log.info('II'); log.error('EE')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.findall(r"\b(DD|II|EE)\b", ended.stdout) == out.split()
    assert re.findall(r"\b(DD|II|EE)\b", ended.stderr) == err.split()
