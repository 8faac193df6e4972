"""Import of lines: each is an event, or an item with an id of its own, sent in batches.

A line without an id gets one made from a base and the line's number, so that running it again with the same base
commits what is missing and doubles nothing, wherever the first run stopped and however long ago: ids are kept for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import click

from semel.cli.events.arriving import arriving_lines
from semel.cli.events.drafts import Draft, DraftError, draft_line
from semel.cli.events.posting import Target, Verdict
from semel.cli.failures import RequestError
from semel.cli.keys import line_key
from semel.cli.progress import progress
from semel.cli.streams.source import size_of

BATCH_ITEMS = 100
BATCH_BYTES = 256 * 1024
"""Well below what a server takes in one request, unless one line is larger by itself."""


class _Line(NamedTuple):
    number: int
    size: int
    draft: Draft


class Import:
    """Submits lines, and passes each verdict to `tell` with the number of its line."""

    def __init__(
        self,
        target: Target,
        base: str,
        partitions: Sequence[str],
        batch_items: int,
        tell: Callable[[int, Verdict], None],
    ) -> None:
        self._target = target
        self._partitions = partitions
        self._batch_items = batch_items
        self._tell = tell
        self._waiting: list[_Line] = []
        self._read = 0
        self._done = 0
        """The last line that was answered."""
        self.base = base
        self.makes_ids = False
        self.committed = 0
        self.rejected = 0
        self.last_id: int | None = None

    def run(self, source: BinaryIO) -> None:
        """Submit every line in its order; a line that cannot be sent ends it, one that is rejected does not."""
        with self._resumable(), progress(size_of(source), "Submitting") as advance:
            for lines in arriving_lines(source):
                for line in lines:
                    self._take(line, advance)
                self._send(advance)

    @property
    def repeated_with(self) -> str:
        """The option that makes another run safe; empty when every line had an id of its own."""
        return f"--id {self.base}" if self.makes_ids else ""

    def _take(self, line: bytes, advance: Callable[[int], None]) -> None:
        self._read += 1
        content = line.strip(b" \t\r\n")
        if not content:
            advance(len(line))
            return
        made = line_key(self.base, self._read)
        try:
            draft = draft_line(content, made, self._partitions)
        except DraftError as error:
            self._send(advance)
            raise click.ClickException(f"Line {self._read}: {error} {self._advice}") from None
        self.makes_ids = self.makes_ids or draft.id == made
        if self._is_full(draft):
            self._send(advance)
        self._waiting.append(_Line(self._read, len(line), draft))

    def _is_full(self, draft: Draft) -> bool:
        """One request names an id once; the second of two lines with one id is a repetition for the next request."""
        size = sum(len(line.draft.text) for line in self._waiting) + len(draft.text)
        is_known = any(line.draft.id == draft.id for line in self._waiting)
        return len(self._waiting) >= self._batch_items or size > BATCH_BYTES or is_known

    def _send(self, advance: Callable[[int], None]) -> None:
        if not self._waiting:
            return
        verdicts = self._target.submit([line.draft for line in self._waiting])
        answered, self._waiting = self._waiting, []
        self._done = answered[-1].number
        for line, verdict in zip(answered, verdicts, strict=True):
            if verdict.committed_id is None:
                self.rejected += 1
            else:
                self.committed += 1
                self.last_id = max(self.last_id or 0, verdict.committed_id)
            self._tell(line.number, verdict)
            advance(line.size)

    @property
    def _advice(self) -> str:
        again = f"run this again with {self.repeated_with}" if self.makes_ids else "run this again"
        return f"What came before is done: {again}, and nothing is doubled."

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """Says how to go on when something ends the import early."""
        try:
            yield
        except RequestError as error:
            first, last = self._waiting[0].number, self._waiting[-1].number
            where = f"Line {first}" if first == last else f"Lines {first} to {last}"
            raise click.ClickException(f"{where}: {error.message} {self._advice}") from error
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped after line {self._done}. {self._advice}") from None
