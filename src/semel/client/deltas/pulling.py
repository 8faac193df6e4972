"""Pulls pages, with a page size that adapts to the connection.

A page that is larger than this client reads, or whose answer was lost on its way, is asked for again with fewer
entries. So neither rows that others have made large nor a line that never carries a whole page stop a replica for good.
"""

from __future__ import annotations

from urllib.parse import quote

from semel.client.calling import Caller
from semel.client.deltas import answers
from semel.client.deltas.replica import Replica
from semel.client.errors import AnswerTooLargeError, CallError, NoAnswerError

PAGE_ENTRIES = 1_000
GOOD_PAGES = 4
"""Number of successful pages in a row before the page size grows again."""


class Puller:
    """Pulls of one replica."""

    def __init__(self, replica: Replica, caller: Caller, path: str, client: str) -> None:
        self._replica = replica
        self._caller = caller
        self._path = f"{path}?dialect=plain&clientId={quote(client, safe='')}"
        self.limit = PAGE_ENTRIES
        """How many entries the next page may have."""
        self._good = 0

    async def fetch(self) -> answers.Page:
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
