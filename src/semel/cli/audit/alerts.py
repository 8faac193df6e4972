"""The alert file beside the audit log: reading known alerts, appending new ones.

It is all that a watcher leaves behind, and all that it needs of an earlier run. An alert is written before it is shown;
a crash between the two leaves it in the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from semel.cli.audit.bursts import Alert, Known
from semel.cli.audit.following import Following
from semel.kernel.utc import utc_ms
from semel.server.line_file import LineFile

FILE_NAME = "alerts.jsonl"


def known_alerts(folder: Path) -> Known:
    """Those of earlier runs."""
    return Known(_known(folder))


def _known(folder: Path) -> Iterator[tuple[str, int]]:
    for text in Following(folder / FILE_NAME).new_lines():
        try:
            line = json.loads(text)
            yield str(line["event"]), utc_ms(line["ts"])
        except (ValueError, KeyError, TypeError):
            continue  # a torn line tells nothing; its alert is raised again


class AlertFile:
    """Made with the first alert."""

    def __init__(self, folder: Path) -> None:
        self._file = LineFile(folder / FILE_NAME)

    def write(self, alert: Alert) -> None:
        """One more; an OSError when the disk does not take it."""
        self._file.append(json.dumps(alert.facts, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
