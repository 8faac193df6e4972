"""Structured logs on standard error: one JSON object for each line, or plain text on a terminal.

The last lines are also kept in memory, as JSON, for a diagnosis. An unreachable store must not fill the disk with log
lines: of a repeated warning or error, some are logged and the rest are counted.

The content, key and credential of a request are never logged. The configured level applies to our own loggers only:
other libraries log headers and frames, with credentials, at debug level, so their level is always warning.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from datetime import UTC, datetime

import orjson

from semel.server.ops.log_facts import WithRequest

LOG_LINES = 200
MAX_LINE_BYTES = 8 * 1024
"""Limit on the bytes of one line of the log in a diagnosis."""
TOLD_AT_ONCE = 20
TOLD_SECONDS = 10.0
"""Of the same message, TOLD_AT_ONCE lines are logged within this many seconds."""
MAX_COMPLAINTS = 256
"""Limit on different messages that are counted apart."""
OWN_LOGGERS = "semel"
"""The parent logger of all our loggers."""

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object for each line; facts given as `extra` become members."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_facts(record))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class Calm(logging.Filter):
    """Suppresses repeated log lines; the next logged line says how many were left out.

    A line with an `error_id` is always logged: a client was given that id, and an operator will search for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._complaints: dict[tuple[str, object], tuple[float, int]] = {}
        """The start of the current window, and the number of lines in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if record.levelno < logging.WARNING or hasattr(record, "error_id"):
            return True
        complaint = (record.name, record.msg)
        with self._guard:
            began, count = self._complaints.get(complaint, (record.created, 0))
            if not 0 <= record.created - began < TOLD_SECONDS:
                left_out, began, count = max(0, count - TOLD_AT_ONCE), record.created, 0
                if left_out:
                    record.left_out = left_out
            if len(self._complaints) >= MAX_COMPLAINTS:
                self._complaints.clear()
            self._complaints[complaint] = began, count + 1
        return count < TOLD_AT_ONCE


class RecentLines(logging.Handler):
    """Keeps the last lines; a long line is truncated."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.addFilter(Calm())
        self.addFilter(WithRequest())
        self._lines: deque[str] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self._lines.append(self.format(record)[:MAX_LINE_BYTES])

    def text(self) -> bytes:
        """The kept lines, oldest first."""
        return "".join(line + "\n" for line in tuple(self._lines)).encode()


RECENT = RecentLines()
"""The last lines of this process."""


class TextFormatter(logging.Formatter):
    """The format for terminals."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record, followed by the traceback of an error."""
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{record.levelname.lower():7} {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def set_up_logs(form: str, level: str) -> None:
    """Send every log of this process to standard error, and keep the last lines; `level` applies to our own loggers."""
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    handler.addFilter(Calm())
    handler.addFilter(WithRequest())
    logging.getLogger().handlers[:] = [handler, RECENT]
    set_log_level(level)


def set_log_level(level: str) -> None:
    """Set the lowest level of our own loggers."""
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(own, logging.WARNING))
    logging.getLogger(OWN_LOGGERS).setLevel(own)
