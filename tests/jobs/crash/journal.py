"""The journal of a worker: what it is about to say and what it was told, one line in one write.

A death between two lines is visible in it. Journals have the system's monotonic time, which is the same in every
process.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.harness.caller import Body

LONG = "long"
"""Jobs of this kind are held with heartbeats over several deaths of the server."""
LONG_SECONDS = (0.5, 2.5)
JOB_NAMES = ("job_id", "lease_token", "epoch", "kind")
"""What a journal tells of a job."""


class Journal:
    """Lines of what was said and heard; used by all slots of one life."""

    def __init__(self, path: Path, life: int) -> None:
        self._life = life
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """One line, in one write."""
        line = json.dumps({"what": what, "at": time.monotonic(), "life": self._life, **facts})
        os.write(self._file, line.encode() + b"\n")

    def note_call(self, what: str, slot: str, job: Body, call: str, sent: Body, **facts: Any) -> None:
        """A line about a call on a job: `sends` before it, `told` after its answer."""
        self.note(what, slot=slot, job={name: job[name] for name in JOB_NAMES}, call=call, sent=sent, **facts)


def lines_of(path: Path) -> list[Body]:
    """The whole lines of a journal."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
