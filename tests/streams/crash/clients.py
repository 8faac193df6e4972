"""Clients that never give up: every append is repeated with the same identity until it is answered.

What they were told is written down: for each operation the answers it got, in order. The check afterwards needs nothing
else: whatever was answered must stand in the stream exactly once, and every answer to one operation must be the same.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from dataclasses import dataclass, field

import httpx

from tests.harness.crash.run import Stop

RETRY_SECONDS = 0.02


@dataclass(slots=True)
class Operation:
    """One logical append."""

    stream: str
    name: str
    headers: dict[str, str]
    answers: list[tuple[int, str]] = field(default_factory=list)
    attempts: int = 0

    @property
    def body(self) -> bytes:
        """The content: its own name, so that a double is seen."""
        return json.dumps({"op": self.name}).encode()

    @property
    def is_keyed(self) -> bool:
        """Whether a retry is told the first offset; a producer's duplicate is told the tail of now."""
        return "Idempotency-Key" in self.headers


async def post(http: httpx.AsyncClient, operation: Operation) -> httpx.Response:
    """One request for it."""
    return await http.post(
        f"/v1/stream/{operation.stream}",
        content=operation.body,
        headers={"Content-Type": "application/json", **operation.headers},
    )


class Client:
    """One writer: keyed appends, or a producer's numbered ones, to one stream."""

    def __init__(self, http: httpx.AsyncClient, stream: str, name: str, *, keyed: bool, seed: int) -> None:
        self._http = http
        self._stream = stream
        self._name = name
        self._keyed = keyed
        self._chance = random.Random(seed)
        self.operations: list[Operation] = []

    async def work(self, stop: Stop) -> None:
        """Append until told to stop; sometimes repeat an old append, as a client that lost its memory would."""
        for number in itertools.count(len(self.operations)):
            if stop.is_set():
                return
            operation = self._new(number)
            self.operations.append(operation)
            await self.carry_out(operation)
            if self._keyed and self._chance.random() < 0.2:
                await self.carry_out(self._chance.choice(self.operations))

    async def carry_out(self, operation: Operation) -> None:
        """Send it until it is answered."""
        while True:
            operation.attempts += 1
            try:
                answer = await self.send(operation)
            except httpx.TransportError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if answer.status_code < 500:
                operation.answers.append((answer.status_code, answer.headers.get("Stream-Next-Offset", "")))
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def send(self, operation: Operation) -> httpx.Response:
        """Send it once."""
        return await post(self._http, operation)

    def _new(self, number: int) -> Operation:
        name = f"{self._name}-{number}"
        if self._keyed:
            return Operation(self._stream, name, {"Idempotency-Key": name})
        producer = {"Producer-Id": self._name, "Producer-Epoch": "0", "Producer-Seq": str(number)}
        return Operation(self._stream, name, producer)
