"""Log format of Kubernetes components: klog's text, or JSON.

Set up once by `kproxy.proxy.daemon.command`; all others use `logging`. A record may carry key-value pairs,
``log.info("...", extra=key_values(node="a"))``: ``node="a"`` at the end of the line, a member in JSON.

Formats: https://kubernetes.io/docs/concepts/cluster-administration/system-logs/
"""

from __future__ import annotations

import fnmatch
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from kproxy.proxy.daemon.config.configuration import Logging

DEBUG_VERBOSITY = 4
"""Lowest ``-v`` at which debug messages are logged."""

_VALUES = "kproxy_values"
_LETTERS = {"DEBUG": "I", "INFO": "I", "WARNING": "W", "ERROR": "E", "CRITICAL": "F"}


def key_values(**given: object) -> Mapping[str, object]:
    """The ``extra`` of a log call, for key-value pairs in its line."""
    return {_VALUES: given}


def configure_logging(config: Logging) -> None:
    """Set up the root logger by a configuration's logging section.

    Nothing is buffered: flushFrequency and infoBufferSize have no meaning here.
    """
    make: type[logging.Formatter] = JsonFormatter if config.format == "json" else TextFormatter
    options = config.options.get(config.format)
    split = isinstance(options, dict) and bool(options.get("splitStream"))
    handlers: list[logging.Handler] = [_handler(sys.stderr, make())]
    if split:
        handlers[0].setLevel(logging.WARNING)
        handlers.append(_handler(sys.stdout, make()))
        handlers[1].addFilter(lambda record: record.levelno < logging.WARNING)
    threshold = VerbosityFilter(config)
    for handler in handlers:
        handler.addFilter(threshold)
    logging.basicConfig(level=threshold.lowest, handlers=handlers, force=True)


def set_verbosity(verbosity: int) -> None:
    """Set the verbosity of the root logger; modules that match a pattern of their own keep theirs."""
    root = logging.getLogger()
    for threshold in {
        each for handler in root.handlers for each in handler.filters if isinstance(each, VerbosityFilter)
    }:
        threshold.general = _level(verbosity)
        root.setLevel(threshold.lowest)


class VerbosityFilter(logging.Filter):
    """Filter of records by the verbosity, or by that of the first pattern the module matches (``--vmodule``)."""

    def __init__(self, config: Logging) -> None:
        """``config`` is the logging section."""
        super().__init__()
        self.general = _level(config.verbosity)
        self._patterns = [(item.file_pattern, _level(item.verbosity)) for item in config.vmodule]

    @property
    def lowest(self) -> int:
        """Level below which no record ever passes."""
        return min([self.general, *(level for _, level in self._patterns)])

    def filter(self, record: logging.LogRecord) -> bool:
        """True if a record is to be written."""
        for pattern, level in self._patterns:
            if fnmatch.fnmatchcase(record.module, pattern):
                return record.levelno >= level
        return record.levelno >= self.general


class TextFormatter(logging.Formatter):
    """``I1121 03:41:01.123456    1234 run.py:42] message key="value"``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, but for the traceback of an exception."""
        head = self.formatTime(record, "%m%d %H:%M:%S")
        micros = int(record.created % 1 * 1_000_000)
        letter = _LETTERS.get(record.levelname, "I")
        line = f"{letter}{head}.{micros:06} {record.process:7} {record.filename}:{record.lineno}] "
        line += _one_line(record.getMessage())
        line += "".join(f" {name}={_quoted(value)}" for name, value in _values(record).items())
        return line + "\n" + self.formatException(record.exc_info) if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """``{"ts":1763692861123.456,"caller":"proxy/daemon/main.py:42","msg":"...","v":0}``; errors have no ``v``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, tracebacks included."""
        line: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{'/'.join(Path(record.pathname).parts[-2:])}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.WARNING:
            line["v"] = DEBUG_VERBOSITY if record.levelno < logging.INFO else 0
        line |= _values(record)
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _handler(stream: TextIO, formatter: logging.Formatter) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    return handler


def _level(verbosity: int) -> int:
    return logging.DEBUG if verbosity >= DEBUG_VERBOSITY else logging.INFO


def _values(record: logging.LogRecord) -> dict[str, object]:
    found = getattr(record, _VALUES, None)
    return found if isinstance(found, dict) else {}


def _one_line(text: str) -> str:
    """Text with escapes for unprintable characters, so that an object's name cannot look like a line of its own."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _quoted(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
