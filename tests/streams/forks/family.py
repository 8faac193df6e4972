"""A client that forks, appends and deletes, and a model of what each of its streams must hold.

Every request is repeated until it is answered: an append with its key, a PUT and a DELETE as they are. So each of them
has one outcome, whatever was killed meanwhile, and the model knows the content of every stream exactly. Only the shared
root is written by all clients at once: a fork of it must hold a beginning of the root as it is in the end.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import httpx

from tests.harness.crash.run import Stop

TEXT = {"Content-Type": "text/plain"}
ROOT = "root"
MOST_STREAMS = 12
_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 120.0


@dataclass
class ModelStream:
    """A stream of the model: its appends, the offsets between them, and whether it can be used."""

    pieces: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=lambda: ["0000000000000000_0000000000000000"])
    shared: int = 0
    """The number of pieces that came from its source: a sub-offset may have cut the last of them."""
    of_root: bool = False

    @property
    def content(self) -> str:
        """What a read must give."""
        return "".join(self.pieces)


class WrongAnswerError(Exception):
    """An answer that no order of events allows."""


class Family:
    """One client with streams of its own."""

    def __init__(self, http: httpx.AsyncClient, urls: list[str], name: str, seed: int) -> None:
        self._http = http
        self._urls = urls
        self._name = name
        self._chance = random.Random(seed)
        self._numbers = count()
        self.streams: dict[str, ModelStream] = {}
        self.dead: set[str] = set()
        self.faults: list[str] = []
        self.operations = 0
        self.retried = 0

    async def work(self, stop: Stop) -> None:
        """Operate until told to stop."""
        while not stop.is_set():
            kind = self._chance.choices(
                [self.create, self.fork, self.fork_root, self.append, self.append_root, self.delete, self.check],
                [1, 4, 1, 5, 2, 3, 2],
            )[0]
            with suppress(WrongAnswerError):  # it is among the faults; the others go on, so that there is load
                await kind()
            self.operations += 1

    async def create(self) -> None:
        """Create a stream with content."""
        if len(self.streams) < MOST_STREAMS:
            name, text = self._new(), self._text()
            answer = await self._ask("PUT", name, TEXT, text)
            self._expect(answer, (200, 201), "create", name)
            self.streams[name] = ModelStream([text], [*ModelStream().offsets, answer.headers["stream-next-offset"]])

    async def fork(self) -> None:
        """Fork a stream of the family at any offset, sometimes inside of an append."""
        source = self._any()
        if source is None or len(self.streams) >= MOST_STREAMS:
            return
        known = self.streams[source]
        at = self._chance.randrange(len(known.offsets))
        pieces, offsets = known.pieces[:at], known.offsets[: at + 1]
        headers = {"Stream-Forked-From": f"/v1/stream/{source}"}
        if at < len(known.pieces) or self._chance.random() < 0.5:
            headers["Stream-Fork-Offset"] = known.offsets[at]
        is_many = known.of_root and at == 0  # the piece that came from the root is many appends
        if at < len(known.pieces) and not is_many and self._chance.random() < 0.4:
            cut = self._chance.randint(1, len(known.pieces[at]))
            headers["Stream-Fork-Sub-Offset"] = str(cut)
            pieces = [*pieces, known.pieces[at][:cut]]
        name = self._new()
        answer = await self._ask("PUT", name, headers)
        self._expect(answer, (200, 201), "fork", name)
        if len(pieces) == len(offsets):
            offsets = [*offsets, answer.headers["stream-next-offset"]]
        self.streams[name] = ModelStream(pieces, offsets, len(pieces), known.of_root and at > 0)

    async def fork_root(self) -> None:
        """Fork the stream that all clients append to, at its tail."""
        if len(self.streams) >= MOST_STREAMS:
            return
        name = self._new()
        answer = await self._ask("PUT", name, {"Stream-Forked-From": f"/v1/stream/{ROOT}"})
        self._expect(answer, (200, 201), "fork of the root", name)
        content = (await self._ask("GET", name)).text
        offset = answer.headers["stream-next-offset"]
        self.streams[name] = ModelStream([content], [ModelStream().offsets[0], offset], 1, of_root=True)

    async def append(self) -> None:
        """Append to a stream of the family, with a key."""
        name = self._any()
        if name is not None:
            text = self._text()
            answer = await self._append(name, text)
            self.streams[name].pieces.append(text)
            self.streams[name].offsets.append(answer.headers["stream-next-offset"])

    async def append_root(self) -> None:
        """Append to the root."""
        await self._append(ROOT, self._text())

    async def _append(self, name: str, text: str) -> httpx.Response:
        answer = await self._ask("POST", name, TEXT | {"Idempotency-Key": f"{self._name}-{next(self._numbers)}"}, text)
        self._expect(answer, (204,), "append", name)
        return answer

    async def delete(self) -> None:
        """Delete a stream, with or without forks."""
        name = self._any()
        if name is not None:
            self._expect(await self._ask("DELETE", name), (204, 404, 410), "delete", name)
            self.dead.add(name)
            del self.streams[name]

    async def check(self) -> None:
        """Read a stream: it holds what the model holds. A deleted one is not found, or gone."""
        name = self._any()
        if name is not None:
            answer = await self._ask("GET", name)
            if answer.status_code != 200 or answer.text != self.streams[name].content:
                self.faults.append(f"{name}: {answer.status_code} {answer.text!r}, not {self.streams[name].content!r}")
        if self.dead:
            dead = self._chance.choice(sorted(self.dead))
            self._expect(await self._ask("HEAD", dead), (404, 410), "look at a deleted stream", dead)

    async def check_all(self, root: str) -> None:
        """Read every stream; a fork of the root begins with a beginning of the root."""
        for name, stream in self.streams.items():
            answer = await self._ask("GET", name)
            if answer.status_code != 200 or answer.text != stream.content:
                self.faults.append(f"{name}: {answer.status_code} {answer.text!r}, not {stream.content!r}")
            if stream.of_root and stream.shared and not root.startswith(stream.pieces[0]):
                self.faults.append(f"{name}: {stream.pieces[0]!r} is no beginning of the root")

    async def delete_all(self) -> None:
        """Delete every stream, in any order."""
        for name in self._chance.sample(sorted(self.streams), len(self.streams)):
            self._expect(await self._ask("DELETE", name), (204, 404, 410), "delete", name)

    async def _ask(
        self, method: str, name: str, headers: dict[str, str] | None = None, body: str = ""
    ) -> httpx.Response:
        """Send a request until it is answered, to any node."""
        end = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while True:
            url = f"{self._chance.choice(self._urls)}/v1/stream/{name}"
            try:
                answer = await self._http.request(method, url, headers=headers, content=body or None)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code < 500:
                return answer
            assert asyncio.get_running_loop().time() < end, f"{method} {name} was not answered"
            self.retried += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    def _expect(self, answer: httpx.Response, statuses: tuple[int, ...], what: str, name: str) -> None:
        if answer.status_code not in statuses:
            self.faults.append(f"{what} {name}: {answer.status_code} {answer.text}")
            raise WrongAnswerError(self.faults[-1])

    def _any(self) -> str | None:
        return self._chance.choice(sorted(self.streams)) if self.streams else None

    def _new(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    def _text(self) -> str:
        return f"<{self._name}:{next(self._numbers)}{'.' * self._chance.randrange(12)}>"
