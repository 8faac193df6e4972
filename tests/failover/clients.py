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

from tests.harness.crash.run import Stop
from tests.streams.crash.clients import Client, Operation, post

NOT_STORED = frozenset({"NOT_STORED", "OVERLOADED"})
"""What a refusal is called that says that nothing was stored."""
WATCH_SECONDS = 0.02
"""Between two rounds of a reader through all streams."""
REST_SECONDS = (0.0, 0.03)
"""Between two appends of a client, so that the generator leaves some of the machine to what it tests."""


@dataclass(slots=True)
class UnnamedOperation(Operation):
    """An append that is sent once; without an answer and without a refusal nobody knows what became of it."""

    is_refused: bool = False
    is_told_unknown: bool = False
    """Whether the node said that it does not know; otherwise the client gave up, or the connection ended."""

    @property
    def is_unknown(self) -> bool:
        """Whether it may stand in the stream, or not."""
        return not self.answers and not self.is_refused


class Answered:
    """When appends were answered, whoever sent them, and how far each stream reaches by these answers."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self.tails: dict[str, str] = {}
        """The greatest offset that was answered for each stream."""

    def note(self, operation: Operation) -> None:
        """This one was answered now."""
        self._moments.append(time.monotonic())
        status, offset = operation.answers[-1]
        if status < 300:
            self.tails[operation.stream] = max(offset, self.tails.get(operation.stream, ""))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._moments)

    def longest_pause(self, since: float) -> float:
        """The longest time from one answer to the next, of those that ended after that moment."""
        return max(later - earlier for earlier, later in itertools.pairwise(tuple(self._moments)) if later > since)


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
            self._answered.note(operation)

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

    async def work(self, stop: Stop) -> None:
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
            self._answered.note(operation)
        else:
            code = answer.json().get("code")
            operation.is_refused = code in NOT_STORED
            operation.is_told_unknown = code == "OUTCOME_UNKNOWN"


class TailWatcher:
    """A reader that knows which appends were answered before it asks: no node may show it less than them.

    A primary that was replaced and does not know it yet would: it has the rows, and lacks those of its successor.
    """

    def __init__(self, node: httpx.AsyncClient, answered: Answered) -> None:
        self._node = node
        self._answered = answered
        self.reads = 0
        self.stale: list[str] = []
        """Tails that were below an offset which was answered earlier."""

    async def work(self, stop: Stop) -> None:
        """Ask for the tail of each stream in turn until told to stop."""
        while not stop.is_set():
            await asyncio.sleep(WATCH_SECONDS)
            for stream, least in list(self._answered.tails.items()):
                await self._look(stream, least)

    async def _look(self, stream: str, least: str) -> None:
        try:
            answer = await self._node.head(f"/v1/stream/{stream}")
        except httpx.TransportError:
            return
        if answer.is_success:
            self.reads += 1
            tail = answer.headers["Stream-Next-Offset"]
            if tail < least:
                self.stale.append(f"{stream} ends at {tail}, after {least} was answered")
