"""Clients of two nodes: named appends that are repeated on either until they are answered, unnamed ones that are not.

An append without a key or a number cannot be repeated safely, so it is sent once, and what came back is written down:
an answer, a refusal that says that nothing was stored, or nothing certain.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from tests.streams.crash.clients import Client, Operation, post

NOT_STORED = frozenset({"NOT_STORED", "OVERLOADED"})
"""What a refusal is called that says that nothing was stored."""
REST_SECONDS = (0.0, 0.03)
"""Between two appends of a client, so that the generator leaves some of the machine to what it tests."""


@dataclass(slots=True)
class UnnamedOperation(Operation):
    """An append that is sent once; without an answer and without a refusal nobody knows what became of it."""

    is_refused: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether it may stand in the stream, or not."""
        return not self.answers and not self.is_refused


class Answered:
    """When appends were answered, whoever sent them."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._news = asyncio.Event()

    def note(self) -> None:
        """One was answered now."""
        self._moments.append(time.monotonic())
        self._news.set()

    async def wait(self) -> None:
        """Until one is answered that was not yet."""
        self._news.clear()
        await self._news.wait()

    def longest_pause(self, since: float) -> float:
        """The longest time from one answer to the next, of those that ended after that moment."""
        return max(later - earlier for earlier, later in itertools.pairwise(self._moments) if later > since)


class RovingClient(Client):
    """A writer at home on the first of these nodes, which repeats on any of them what was not answered."""

    def __init__(
        self, nodes: Sequence[httpx.AsyncClient], stream: str, name: str, *, keyed: bool, seed: int, answered: Answered
    ) -> None:
        super().__init__(nodes[0], stream, name, keyed=keyed, seed=seed)
        self._nodes = nodes
        self._answered = answered

    async def carry_out(self, operation: Operation) -> None:
        """Send it until it is answered, and note when that was for the first time."""
        await asyncio.sleep(self._chance.uniform(*REST_SECONDS))
        await super().carry_out(operation)
        if len(operation.answers) == 1:
            self._answered.note()

    async def send(self, operation: Operation) -> httpx.Response:
        """The first time to the node at home, then to any."""
        node = self._http if operation.attempts == 1 else self._chance.choice(self._nodes)
        return await post(node, operation)


class UnnamedClient:
    """A writer whose appends have nothing but a body."""

    def __init__(
        self, nodes: Sequence[httpx.AsyncClient], stream: str, name: str, *, seed: int, answered: Answered
    ) -> None:
        self._nodes = nodes
        self._stream = stream
        self._name = name
        self._chance = random.Random(seed)
        self._answered = answered
        self.operations: list[UnnamedOperation] = []

    async def work(self, stop: asyncio.Event) -> None:
        """Append until told to stop, on any node."""
        for number in itertools.count(len(self.operations)):
            if stop.is_set():
                return
            operation = UnnamedOperation(self._stream, f"{self._name}-{number}", {})
            self.operations.append(operation)
            await self._send(operation)
            await asyncio.sleep(self._chance.uniform(*REST_SECONDS))

    async def _send(self, operation: UnnamedOperation) -> None:
        operation.attempts += 1
        try:
            answer = await post(self._chance.choice(self._nodes), operation)
        except httpx.TransportError:
            return
        if answer.status_code < 500:
            operation.answers.append((answer.status_code, answer.headers.get("Stream-Next-Offset", "")))
            self._answered.note()
        else:
            operation.is_refused = answer.json().get("code") in NOT_STORED
