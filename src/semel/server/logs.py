"""Structured logs on standard error: one JSON object a line, or plain text on a terminal.

The last lines are kept in memory besides, as JSON, for a diagnosis.

Nothing of a request's content, key or credential is ever logged.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from datetime import UTC, datetime

import orjson

LOG_LINES = 200
MAX_LINE_BYTES = 8 * 1024
"""What a diagnosis takes of a log."""

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One object a line; facts given as `extra` become members."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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


class RecentLines(logging.Handler):
    """Keeps the last lines; a long one is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self._lines: deque[str] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self._lines.append(self.format(record)[:MAX_LINE_BYTES])

    def text(self) -> bytes:
        """What is kept, oldest first."""
        return "".join(line + "\n" for line in tuple(self._lines)).encode()


RECENT = RecentLines()
"""Of this process, as logs are."""


class TextFormatter(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback of a fault below it."""
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{record.levelname.lower():7} {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def set_up_logs(form: str, level: str) -> None:
    """Send every log of this process to standard error, and keep its end."""
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler, RECENT]
    root.setLevel(level.upper())
    # They would log every connection and every broken request, and at debug headers and frames.
    logging.getLogger("uvicorn").setLevel("ERROR")
    logging.getLogger("websockets").setLevel("WARNING")
