"""Retries: a call is repeated until it has an answer, within a number of attempts and a time limit.

A lost answer and a server without room are retried; a definite answer is not. Every call that changes something has an
identity (a key, a claim id, a lease token), so a retry has no second effect.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from semel.client.answers import members
from semel.client.errors import BadAnswerError, CallError, RefusedError, refusal
from semel.client.transport import ClientAnswer, Transport

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0
MOST_ASKED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """The maximum attempts and total time of retries; None means no limit."""

    tries: int | None = 8
    seconds: float | None = 60.0

    def is_over(self, tried: int, elapsed: float, pause: float) -> bool:
        """Whether a retry after this pause would exceed a limit."""
        if self.tries is not None and tried >= self.tries:
            return True
        return self.seconds is not None and elapsed + pause > self.seconds


ENDLESS = Patience(None, None)


def pause_seconds(tried: int, asked: float, chance: float) -> float:
    """Exponential backoff with jitter (0 to 1), in seconds.

    It is at least the server's `Retry-After`, up to one minute.
    """
    own = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tried - 1, 16))
    return max(own * (0.5 + chance / 2), min(asked, MOST_ASKED_SECONDS) * (1 + chance / 4))


T = TypeVar("T")
Facts = Mapping[str, Any]
OnRetry = Callable[[CallError], None]
Refuse = Callable[[int, Facts, float], RefusedError]
"""Makes the error of an unsuccessful answer from its status, its members and its `Retry-After` in seconds."""
Instead = Callable[[CallError], str]
"""Returns the path of the next attempt after an error."""


class ClientCaller:
    """Calls one server, with retries."""

    def __init__(
        self, transport: Transport, patience: Patience, most_bytes: int, on_retry: OnRetry, refuse: Refuse = refusal
    ) -> None:
        self._transport = transport
        self.patience = patience
        self._most_bytes = most_bytes
        self._on_retry = on_retry
        self._refuse = refuse

    async def post(self, path: str, body: bytes, *, wait: float = 0.0, most_bytes: int = 0) -> Facts:
        """The members of the answer to a POST. `body` has an identity, so that a retry has no second effect."""
        return await self._ask("POST", path, body, wait, most_bytes)

    async def put(self, path: str, body: bytes) -> Facts:
        """The members of the answer to a PUT, which is idempotent."""
        return await self._ask("PUT", path, body, 0.0, 0)

    async def get(self, path: str, *, wait: float = 0.0, instead: Instead | None = None) -> Facts:
        """The members of the answer to a GET. A retry uses the same path, or the one that `instead` returns."""
        return await self._ask("GET", path, None, wait, 0, instead)

    async def _ask(
        self, method: str, path: str, body: bytes | None, wait: float, most_bytes: int, instead: Instead | None = None
    ) -> Facts:
        async def once() -> Facts:
            answer = await self._transport.request(
                method, path, body, wait_seconds=wait, most_bytes=most_bytes or self._most_bytes
            )
            return self.facts(answer)

        def again(error: CallError) -> None:
            nonlocal path
            path = path if instead is None else instead(error)

        return await self.insist(once, again)

    async def insist(self, call: Callable[[], Awaitable[T]], again: Callable[[CallError], None]) -> T:
        """The result of a call with retries; `again` is called before each retry."""
        began, tried, is_unsettled = time.monotonic(), 0, False
        while True:
            tried += 1
            try:
                return await call()
            except CallError as error:
                is_unsettled = is_unsettled or error.is_unsettled
                pause = pause_seconds(tried, error.retry_after, random.random())  # noqa: S311 - not a secret
                if not error.may_pass or self.patience.is_over(tried, time.monotonic() - began, pause):
                    error.is_unsettled = is_unsettled and error.may_pass
                    raise
                self._on_retry(error)
                again(error)
            await asyncio.sleep(pause)

    def facts(self, answer: ClientAnswer) -> Facts:
        """The members of a successful answer. Raises the error of any other."""
        is_success = 200 <= answer.status < 300
        try:
            facts: Facts = members(answer.body)
        except ValueError:
            if is_success or 300 <= answer.status < 400:
                raise BadAnswerError(
                    f"The server at {self._transport.url} does not speak this protocol: check the URL."
                ) from None
            facts = {}
        if not is_success:
            raise self._refuse(answer.status, facts, answer.retry_after)
        return facts
