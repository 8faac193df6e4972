"""Pulls of a replica: pages of the log, and checkpoints in place of the log from its beginning.

A page that is larger than this client reads, or whose answer was lost, is asked for again with fewer entries, so that
neither large rows nor a bad connection stop a replica for good.

A checkpoint is all rows as of one position. It is read line by line, and each line is on disk before the next is read.
One that breaks off is started again. Only at its end are rows removed that it did not contain, and the cursor set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import NamedTuple
from urllib.parse import quote

from semel.client.answers import members
from semel.client.deltas import answers
from semel.client.deltas.replica import Applied, LocalReplica
from semel.client.errors import AnswerTooLargeError, BadAnswerError, CallError, NoAnswerError, NotFoundError
from semel.client.retry import ClientCaller
from semel.client.transport import ClientAnswer, Transport

PAGE_ENTRIES = 1_000
GOOD_PAGES = 4
"""Number of successful pages in a row before the page size grows again."""


class Puller:
    """Pulls of one replica."""

    def __init__(self, replica: LocalReplica, caller: ClientCaller, path: str, client: str) -> None:
        self._replica = replica
        self._caller = caller
        self._path = f"{path}?dialect=plain&clientId={quote(client, safe='')}"
        self.limit = PAGE_ENTRIES
        """How many entries the next page may have."""
        self._good = 0

    async def fetch(self) -> answers.ReplicaPage:
        """The page behind the replica's cursor; it is not written down yet."""
        since = self._replica.progress.cursor
        while True:
            try:
                facts = await self._caller.get(self._target(since), instead=lambda error: self._again(since, error))
            except AnswerTooLargeError:
                if self.limit == 1:
                    raise
                self._ask_for_less()
            except CallError as error:
                self._again(since, error)
                raise
            else:
                self._ask_for_more()
                return answers.page(facts, since)

    def _target(self, since: int) -> str:
        own = self._replica.progress.own_after
        return f"{self._path}&since={since}&limit={self.limit}" + ("" if own is None else f"&ownAfter={own}")

    def _again(self, since: int, error: CallError) -> str:
        """The page size after an error: smaller, if the answer was on its way."""
        if isinstance(error, NoAnswerError) and error.is_unsettled:
            self._ask_for_less()
        return self._target(since)

    def _ask_for_less(self) -> None:
        self.limit, self._good = max(1, self.limit // 2), 0

    def _ask_for_more(self) -> None:
        self._good += 1
        if self._good == GOOD_PAGES:
            self.limit, self._good = min(PAGE_ENTRIES, self.limit * 2), 0


class CheckpointRead(NamedTuple):
    """The result of a checkpoint."""

    rows: int = 0
    changed: int = 0
    ahead_ms: int = 0

    def and_also(self, applied: Applied) -> CheckpointRead:
        """With one more step."""
        changed = self.changed + len(applied.changes) + applied.put_off
        return self._replace(changed=changed, ahead_ms=max(self.ahead_ms, applied.ahead_ms))


class CheckpointReader:
    """Checkpoints of one replica."""

    def __init__(
        self, replica: LocalReplica, caller: ClientCaller, transport: Transport, path: str, client: str, most_bytes: int
    ) -> None:
        self._replica = replica
        self._caller = caller
        self._transport = transport
        self._path = f"{path}?dialect=plain&clientId={quote(client, safe='')}"
        self._most_bytes = most_bytes

    async def take(self, *, is_told: bool) -> CheckpointRead:
        """Load a checkpoint; where there is none, forget unreliable rows and read the log from its beginning.

        With `is_told` its changes wait in the replica for followers.
        """
        try:
            return await self._caller.insist(lambda: self._once(is_told=is_told), _nothing)
        except NotFoundError:
            if self._replica.progress.is_stale:
                self._replica.start_over()
            return CheckpointRead()

    async def _once(self, *, is_told: bool) -> CheckpointRead:
        number, taken = self._replica.begin_checkpoint(), CheckpointRead()
        async with self._transport.lines(self._path, self._most_bytes) as found:
            if isinstance(found, ClientAnswer):
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

    def _apply(self, number: int, page: answers.ReplicaPage, *, is_told: bool) -> Iterator[Applied | None]:
        """One line; the last one ends the checkpoint, in several steps where many rows are to be forgotten."""
        yield self._replica.take_rows(number, page, is_told=is_told)
        is_done = page.has_more
        while not is_done:
            applied = self._replica.end_checkpoint(number, page, is_told=is_told)
            yield applied
            is_done = applied is None or applied.is_done


def _piece(line: bytes, url: str) -> answers.ReplicaPage:
    try:
        return answers.piece(members(line))
    except ValueError:
        raise BadAnswerError(f"What answers at {url} does not speak this protocol.") from None


def _nothing(error: CallError) -> None:
    """The next try begins anew by itself."""
