"""Retries: a call is repeated until it has an answer or its time limit ends; a decision is never asked for twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from semel.client.errors import BadAnswerError, CallError, RefusedError, refusal
from semel.client.patience import Patience, pause_seconds
from semel.client.reading import members
from semel.client.transport import Answer, Transport

T = TypeVar("T")
Facts = Mapping[str, Any]
OnRetry = Callable[[CallError], None]
Refuse = Callable[[int, Facts, float], RefusedError]
"""Makes the error behind an answer that is no success: of its status, its members, and the seconds it asks to wait."""
Instead = Callable[[CallError], str]
"""The path to ask for after an error, in place of the one before."""


class Caller:
    """Asks one server, again and again where that can help."""

    def __init__(
        self, transport: Transport, patience: Patience, most_bytes: int, on_retry: OnRetry, refuse: Refuse = refusal
    ) -> None:
        self._transport = transport
        self.patience = patience
        self._most_bytes = most_bytes
        self._on_retry = on_retry
        self._refuse = refuse

    async def post(self, path: str, body: bytes, *, wait: float = 0.0, most_bytes: int = 0) -> Facts:
        """The members of the answer; `body` has an identity, so that a repetition has no second effect."""
        return await self._ask("POST", path, body, wait, most_bytes)

    async def put(self, path: str, body: bytes) -> Facts:
        """The members of the answer to an idempotent request."""
        return await self._ask("PUT", path, body, 0.0, 0)

    async def get(self, path: str, *, wait: float = 0.0, instead: Instead | None = None) -> Facts:
        """The members of the answer; a try after an error asks for the same again, or for what `instead` says."""
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
        """The result of a call, with the retries of its policy; `again` is called before each retry."""
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

    def facts(self, answer: Answer) -> Facts:
        """The members of a successful answer; anything else is raised."""
        is_success = 200 <= answer.status < 300
        try:
            facts: Facts = members(answer.body)
        except ValueError:
            if is_success or 300 <= answer.status < 400:
                raise BadAnswerError(f"What answers at {self._transport.url} does not speak this protocol.") from None
            facts = {}
        if not is_success:
            raise self._refuse(answer.status, facts, answer.retry_after)
        return facts
