"""Pulls of a replica: pages of the log, and checkpoints instead of the log's beginning.

A page that exceeds the client's size limit, or whose answer was lost, is requested again with fewer entries, so that
neither large rows nor a bad connection can stop a replica permanently.

A checkpoint is all rows at one position. It is read line by line, and each line is on disk before the next is read. A
truncated checkpoint is loaded again. Rows that it lacks are deleted, and the cursor is set, only at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from semel.client.deltas import answers
from semel.client.deltas.replica import Applied, LocalReplica
from semel.client.errors import AnswerTooLargeError, CallError, NoAnswerError, NotFoundError
from semel.client.json_answer import facts_of
from semel.client.retry import ClientCaller
from semel.client.transport.http_transport import ClientRequest
from semel.client.transport.lines import LineReader

OK = 200
PAGE_ENTRIES = 1_000
GOOD_PAGES = 4
"""Consecutive successful pages before the page size grows again."""


class Puller:
    """Pulls of one replica."""

    def __init__(self, replica: LocalReplica, caller: ClientCaller, path: str, client: str, most_bytes: int) -> None:
        self._replica = replica
        self._caller = caller
        self._path = f"{path}?dialect=plain&clientId={quote(client, safe='')}"
        self._most_bytes = most_bytes
        self.limit = PAGE_ENTRIES
        """Maximum entries of the next page."""
        self._good = 0

    async def fetch(self) -> answers.ReplicaPage:
        """Fetch the page after the replica's cursor, without storing it."""
        since = self._replica.progress.cursor
        while True:
            try:
                facts = await self._caller.facts(self._request(since), instead=lambda error: self._again(since, error))
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

    def _request(self, since: int) -> ClientRequest:
        own = self._replica.progress.own_after
        path = f"{self._path}&since={since}&limit={self.limit}" + ("" if own is None else f"&ownAfter={own}")
        return ClientRequest("GET", path, most_bytes=self._most_bytes)

    def _again(self, since: int, error: CallError) -> ClientRequest:
        """The page size after an error: smaller if the answer was being received."""
        if isinstance(error, NoAnswerError) and error.is_unsettled:
            self._ask_for_less()
        return self._request(since)

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
        """The sum of two results."""
        changed = self.changed + len(applied.changes) + applied.put_off
        return self._replace(changed=changed, ahead_ms=max(self.ahead_ms, applied.ahead_ms))


class CheckpointReader:
    """Checkpoints of one replica."""

    def __init__(self, replica: LocalReplica, caller: ClientCaller, path: str, client: str, most_bytes: int) -> None:
        self._replica = replica
        self._caller = caller
        self._request = ClientRequest("GET", f"{path}?dialect=plain&clientId={quote(client, safe='')}")
        self._most_bytes = most_bytes

    async def take(self, *, is_told: bool) -> CheckpointRead:
        """Load a checkpoint. If there is none, drop unreliable rows and read the log from its beginning.

        With `is_told` the replica keeps its changes for followers.
        """
        try:
            return await self._caller.insist(lambda seconds: self._once(seconds, is_told=is_told), _nothing)
        except NotFoundError:
            if self._replica.progress.is_stale:
                self._replica.start_over()
            return CheckpointRead()

    async def _once(self, answer_seconds: float, *, is_told: bool) -> CheckpointRead:
        transport, taken = self._caller.transport, CheckpointRead()
        number = self._replica.begin_checkpoint()
        async with transport.open(self._request, answer_seconds) as answer:
            if answer.status != OK:
                self._caller.checked(await transport.whole(answer, self._most_bytes))
                raise transport.not_semel()
            lines = LineReader(answer, self._most_bytes)
            while (line := await lines.next()) is not None:
                page = self._page(line)
                taken = taken._replace(rows=taken.rows + len(page.entries))
                for applied in self._apply(number, page, is_told=is_told):
                    if applied is None:  # start_over was called meanwhile: the cursor requires a new checkpoint
                        return taken
                    taken = taken.and_also(applied)
                if not page.has_more:
                    return taken
        raise NoAnswerError(f"The checkpoint of {transport.url} was truncated.", is_unsettled=True)

    def _apply(self, number: int, page: answers.ReplicaPage, *, is_told: bool) -> Iterator[Applied | None]:
        """Apply one line. The last one ends the checkpoint, in several steps if many rows must be deleted."""
        yield self._replica.take_rows(number, page, is_told=is_told)
        is_done = page.has_more
        while not is_done:
            applied = self._replica.end_checkpoint(number, page, is_told=is_told)
            yield applied
            is_done = applied is None or applied.is_done

    def _page(self, line: bytes) -> answers.ReplicaPage:
        try:
            return answers.piece(facts_of(line))
        except ValueError:
            raise self._caller.transport.not_semel() from None


def _nothing(error: CallError) -> None:
    """Does nothing before a retry: the next attempt starts from the beginning."""
