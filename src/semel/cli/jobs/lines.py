"""Import of lines: each is a job, or the params of one, sent in batches.

A line without a key gets one made from a base and the line's number, so that running it again with the same base queues
what is missing and doubles nothing, wherever the first run stopped, for as long as the server honours keys (a day after
the job's end, unless it was set up otherwise). A line that has changed since is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import click

from semel.cli.events.arriving import arriving_lines
from semel.cli.failures import RequestError
from semel.cli.jobs.asking import Server
from semel.cli.jobs.drafts import Draft, DraftError
from semel.cli.jobs.posting import Batch, Verdict
from semel.cli.keys import line_key
from semel.cli.progress import progress
from semel.cli.streams.source import size_of

BATCH_ITEMS = 100
BATCH_BYTES = 512 * 1024
"""Well below what a server takes in one request, unless one line is larger by itself."""


class Plan(NamedTuple):
    """How lines become jobs: `draft` makes one of a line and the key that is made for it, if keys are made."""

    draft: Callable[[bytes, str | None], Draft]
    base: str | None
    is_base_fresh: bool
    """Whether no earlier run can have used this base."""
    batch_items: int
    tell: Callable[[int, Draft, Verdict], None]


class _Line(NamedTuple):
    number: int
    size: int
    draft: Draft


class Import:
    """Takes lines, submits them, and hands each verdict to the plan with the number of its line."""

    def __init__(self, server: Server, plan: Plan) -> None:
        self._batch = Batch(server)
        self._plan = plan
        self._waiting: list[_Line] = []
        self._read = 0
        self._done = 0
        """Up to this line all have been answered."""
        self._is_keyed = True
        """Whether every line so far has a key."""
        self.makes_keys = False
        self.new = 0
        self.known = 0
        self.refused = 0

    def run(self, source: BinaryIO) -> None:
        """Submit every line in its order; a line that cannot be sent ends it, one that is refused does not."""
        with self._resumable(), progress(size_of(source), "Submitting") as advance:
            for lines in arriving_lines(source):
                for line in lines:
                    self._take(line, advance)
                self._send(advance)

    def _take(self, line: bytes, advance: Callable[[int], None]) -> None:
        self._read += 1
        content = line.strip(b" \t\r\n")
        if not content:
            advance(len(line))
            return
        made = None if self._plan.base is None else line_key(self._plan.base, self._read)
        try:
            draft = self._plan.draft(content, made)
        except DraftError as error:
            self._send(advance)
            raise click.ClickException(f"Line {self._read}: {error} {self._advice}") from None
        if made is not None and draft.key == made:
            self._tell_base()
        self._is_keyed = self._is_keyed and draft.key is not None
        if self._is_full(draft):
            self._send(advance)
        self._waiting.append(_Line(self._read, len(line), draft))

    def _tell_base(self) -> None:
        """Print the base key at once, because a killed run cannot print it any more."""
        if not self.makes_keys and self._plan.is_base_fresh:
            base = self._plan.base
            click.echo(f"Keys: {base}-1, {base}-2, ...; a run that is cut off goes on with --key {base}.", err=True)
        self.makes_keys = True

    def _is_full(self, draft: Draft) -> bool:
        size = sum(len(line.draft.text) for line in self._waiting) + len(draft.text)
        return len(self._waiting) >= self._plan.batch_items or (size > BATCH_BYTES and bool(self._waiting))

    def _send(self, advance: Callable[[int], None]) -> None:
        if not self._waiting:
            return
        sent = self._waiting
        left = set(range(len(sent)))
        for place, verdict in self._batch.submit([line.draft for line in sent]):
            line = sent[place]
            left.remove(place)
            self._done = sent[min(left)].number - 1 if left else sent[-1].number
            self._count(verdict)
            self._plan.tell(line.number, line.draft, verdict)
            advance(line.size)
        self._waiting = []

    def _count(self, verdict: Verdict) -> None:
        if verdict.refusal is not None:
            self.refused += 1
        elif verdict.is_new:
            self.new += 1
        else:
            self.known += 1

    @property
    def _advice(self) -> str:
        if not self._is_keyed:
            return (
                f"Lines up to {self._done} are done; those without a key would be queued twice if they were repeated."
            )
        again = f"run this again with --key {self._plan.base}" if self.makes_keys else "run this again"
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
