"""Loads checkpoints: a snapshot of all rows at one position, instead of the log from its beginning.

It is read line by line, and each line is on disk before the next is looked at. One that breaks off is begun again; only
when it has come to its end are rows forgotten that it has not told, and the cursor set. Until then the replica has rows
of both, and its cursor is where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import NamedTuple
from urllib.parse import quote

from semel.client.calling import Caller
from semel.client.deltas import answers
from semel.client.deltas.replica import Applied, Replica
from semel.client.errors import BadAnswerError, CallError, NoAnswerError, NotFoundError
from semel.client.reading import members
from semel.client.transport import Answer, Transport


class Taken(NamedTuple):
    """The result of a checkpoint."""

    rows: int = 0
    changed: int = 0
    ahead_ms: int = 0

    def and_also(self, applied: Applied) -> Taken:
        """With one more step."""
        changed = self.changed + len(applied.changes) + applied.put_off
        return self._replace(changed=changed, ahead_ms=max(self.ahead_ms, applied.ahead_ms))


class CheckpointReader:
    """Checkpoints of one replica."""

    def __init__(
        self, replica: Replica, caller: Caller, transport: Transport, path: str, client: str, most_bytes: int
    ) -> None:
        self._replica = replica
        self._caller = caller
        self._transport = transport
        self._path = f"{path}?dialect=plain&clientId={quote(client, safe='')}"
        self._most_bytes = most_bytes

    async def take(self, *, is_told: bool) -> Taken:
        """Load a checkpoint; where there is none, forget unreliable rows and read the log from its beginning.

        With `is_told` its changes wait in the replica for followers.
        """
        try:
            return await self._caller.insist(lambda: self._once(is_told=is_told), _nothing)
        except NotFoundError:
            if self._replica.progress.is_stale:
                self._replica.start_over()
            return Taken()

    async def _once(self, *, is_told: bool) -> Taken:
        number, taken = self._replica.begin_checkpoint(), Taken()
        async with self._transport.lines(self._path, self._most_bytes) as found:
            if isinstance(found, Answer):
                self._caller.facts(found)
                raise BadAnswerError(f"What answers at {self._transport.url} does not speak this protocol.")
            async with aclosing(found):
                async for line in found:
                    page = _piece(line, self._transport.url)
                    taken = taken._replace(rows=taken.rows + len(page.entries))
                    for applied in self._apply(number, page, is_told=is_told):
                        if applied is None:  # it was started over meanwhile: the cursor says that it is to begin
                            return taken
                        taken = taken.and_also(applied)
                    if not page.has_more:
                        return taken
        raise NoAnswerError(f"The checkpoint of {self._transport.url} has no end.", is_unsettled=True)

    def _apply(self, number: int, page: answers.Page, *, is_told: bool) -> Iterator[Applied | None]:
        """One line; the last one ends the checkpoint, in several steps where many rows are to be forgotten."""
        yield self._replica.take_rows(number, page, is_told=is_told)
        is_done = page.has_more
        while not is_done:
            applied = self._replica.end_checkpoint(number, page, is_told=is_told)
            yield applied
            is_done = applied is None or applied.is_done


def _piece(line: bytes, url: str) -> answers.Page:
    try:
        return answers.piece(members(line))
    except ValueError:
        raise BadAnswerError(f"What answers at {url} does not speak this protocol.") from None


def _nothing(error: CallError) -> None:
    """The next try begins anew by itself."""
