"""`GET /v1/audit`: the latest lines of the audit log, newest first.

The last bytes of both files are read, in a thread: at most `TAIL_BYTES` of each, in the file in use and, where that has
less, in the one before it. Older lines are in the files themselves; `semel audit` checks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import orjson

from semel.kernel.errors import Refused
from semel.server.ops.audit_log import NAMES

TAIL_BYTES = 512 * 1024
MAX_LINES = 500
USUAL_LINES = 100
MAX_EVENT = 64
"""Characters of the name of an event."""


class AuditQuery(NamedTuple):
    """What a caller asks for."""

    limit: int = USUAL_LINES
    event: str = ""
    """Only lines of this event; empty for all."""


def parse_query(query: bytes) -> AuditQuery:
    """The query of a request; refused if a parameter is out of its range."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    limit, event = given.get("limit", [str(USUAL_LINES)])[-1], given.get("event", [""])[-1]
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_LINES):
        raise Refused("INVALID_REQUEST", f"limit must be a whole number from 1 to {MAX_LINES}.")
    if len(event) > MAX_EVENT:
        raise Refused("INVALID_REQUEST", f"event must have at most {MAX_EVENT} characters.")
    return AuditQuery(int(limit), event)


def audit_tail(folder: Path, query: AuditQuery) -> bytes:
    """The answer; reads files, so it runs in a thread."""
    lines = [line for name in NAMES for line in _tail(folder / name) if query.event in ("", line["event"])]
    lines.sort(key=lambda line: str(line["ts"]), reverse=True)
    shown = [{name: line[name] for name in ("ts", "event", "details")} for line in lines[: query.limit]]
    return orjson.dumps({"lines": shown})


def _tail(path: Path) -> Iterator[dict[str, Any]]:
    """The latest lines of a file and of the one before it; a line that is torn or no JSON object is left out."""
    newest = _last_bytes(path, TAIL_BYTES)
    older = path.with_name(f"{path.name}.1")
    rest = TAIL_BYTES - len(newest)
    content = (_last_bytes(older, rest) if rest else b"") + newest
    for text in content.split(b"\n"):
        try:
            line = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(line, dict) and {"ts", "event", "details"} <= line.keys():
            yield line


def _last_bytes(path: Path, most: int) -> bytes:
    """The end of a file, from the beginning of a line on; empty if there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            content = file.read(most)
    except OSError:
        return b""
    return content if size <= most else content.partition(b"\n")[2]
