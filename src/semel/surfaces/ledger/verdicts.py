"""Verdicts on transactions of the queue, and what waits for them."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from semel.engine.contract import EngineError
from semel.kernel.errors import Refused
from semel.surfaces.ledger.commands import PreparedWrite, WriteCommitted, WriteDeclined, WriteReplayed


class DraftedWrite(NamedTuple):
    """One of many transactions that a request carries."""

    prepared: PreparedWrite
    wants_proof: bool


WriteVerdict = WriteCommitted | WriteReplayed | WriteDeclined | Refused | EngineError
"""The verdict on one of many transactions."""


class OneVerdict:
    """Waits for the verdict of one transaction."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(self, number: int, answer: Any) -> None:
        """Deliver the verdict."""
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, number: int, error: BaseException) -> None:
        """Deliver the error."""
        if not self.future.done():
            self.future.set_exception(error)


class ManyVerdicts:
    """Waits for the verdicts of many transactions."""

    __slots__ = ("_left", "answers", "future")

    def __init__(self, count: int) -> None:
        self.answers: list[Any] = [None] * count
        self._left = count
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, number: int, answer: Any) -> None:
        """Keep a verdict; the last one ends the wait."""
        self.answers[number] = answer
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(None)

    def fail(self, number: int, error: BaseException) -> None:
        """Keep an error as the verdict."""
        self.settle(number, error)
