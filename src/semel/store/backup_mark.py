"""The time of the last backup of a data folder, in a small file beside the database, for the metrics of a server.

A backup changes nothing of the store itself. The file is a hint: it may be missing or stale after a crash, and a user
who may not write to the folder makes backups without it. A database that nodes share has no folder, and so no mark.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

FILE_NAME = "last-backup"
_MAX_BYTES = 32


def write_mark(folder: Path, taken_at: int) -> None:
    """Store the time of a backup, in milliseconds since 1970."""
    with suppress(OSError):
        (folder / FILE_NAME).write_text(f"{taken_at}\n")


def read_mark(folder: Path) -> int | None:
    """The time of the last backup; None if it is unknown."""
    try:
        with (folder / FILE_NAME).open("rb") as file:
            return int(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None


def age_of_mark(folder: Path, now_ms: int) -> float | None:
    """Seconds since the last backup, never below 0; None if it is unknown."""
    taken_at = read_mark(folder)
    return None if taken_at is None else max(0, now_ms - taken_at) / 1_000
