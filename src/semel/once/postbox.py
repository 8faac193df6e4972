"""Posting without sending: what an outbox and a transaction of the caller's have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semel.once.drafts import UNSAID, Draft, lettered
from semel.once.errors import InvalidKey
from semel.once.letter_table import LetterStatements, Now
from semel.once.letters import HeaderValue
from semel.once.posts import Posted, post_using, post_using_async, posted
from semel.once.rules import Flow
from semel.once.size import Size, byte_count
from semel.once.stores import Clock

MAX_LETTERS = 100_000
MAX_BODY: Size = "1MiB"


def now_by(clock: Clock, monotonic: Clock) -> Callable[[], Now]:
    """The time by two clocks."""
    return lambda: Now(int(clock() * 1_000), int(monotonic() * 1_000))


class Postbox:
    """What is needed to store a letter; nothing here sends one."""

    def __init__(
        self,
        statements: LetterStatements,
        max_letters: int,
        max_body: Size,
        ids: Callable[[], str],
        now: Callable[[], Now],
    ) -> None:
        if max_letters < 1:
            raise InvalidKey("max_letters must be at least 1.")
        self.statements = statements
        self._max_letters = max_letters
        self._max_body = byte_count(max_body)
        self._ids = ids
        self._now = now

    def drafted(self, draft: Draft) -> tuple[str, Flow[Posted]]:
        """The key of a letter, and the flow that stores it."""
        draft = draft if draft.key is not None else draft._replace(key=self._ids())
        letter = lettered(draft, self._max_body)
        return letter.key, posted(self.statements, letter, self._now(), self._max_letters)


class TransactionOutbox:
    """Posts letters in the transaction that is open on one connection; another process delivers them."""

    def __init__(self, connection: Any, postbox: Postbox) -> None:
        self._connection = connection
        self._postbox = postbox

    def post(
        self,
        url: str,
        *,
        json: Any = UNSAID,
        data: bytes | str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        method: str = "POST",
        key: object = None,
        order_by: object = None,
    ) -> Posted:
        """As `Outbox.post`, in the transaction: the letter commits with it."""
        key, flow = self._postbox.drafted(Draft(url, key, method, json, data, headers, order_by))
        return post_using(self._connection, flow, key, self._postbox.statements.table)

    async def post_async(
        self,
        url: str,
        *,
        json: Any = UNSAID,
        data: bytes | str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        method: str = "POST",
        key: object = None,
        order_by: object = None,
    ) -> Posted:
        """The same for an asynchronous connection or session."""
        key, flow = self._postbox.drafted(Draft(url, key, method, json, data, headers, order_by))
        return await post_using_async(self._connection, flow, key, self._postbox.statements.table)
