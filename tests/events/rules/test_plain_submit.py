"""Plain submissions are read in one pass and decided for a whole batch, with the results of the full path.

`make nightly NAME=express` compares as many as you like.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from semel.surfaces.events.commands import EventItem, EventSubmit
from semel.surfaces.events.reading import head_of
from semel.surfaces.events.requests import EventSubmissions
from semel.surfaces.events.rules import plain_submit
from semel.surfaces.events.rules.partitions import PartitionSet
from semel.surfaces.events.wire import plain_message
from tests.events.in_process import TURNS, InProcess, PipeClient, in_process, request
from tests.events.rules import differential, plain_messages

SEEDS = 6
STEPS = 60
CLOCKS = ("timestamp", "status_updated_at", "server_time")


def decided(seeds: range) -> tuple[int, int, int]:
    """The number of items, of those that the express decision decided, and of submissions that it left."""
    found = [differential.Comparison(seed) for seed in seeds]
    for comparison in found:
        for _ in range(STEPS):
            comparison.step()
    return sum(one.items for one in found), sum(one.express for one in found), sum(one.left for one in found)


def read(seeds: range) -> tuple[int, int]:
    """The number of messages, and of those that are plain."""
    found = [plain_messages.Comparison(seed) for seed in seeds]
    for comparison in found:
        for _ in range(200):
            comparison.step()
    return sum(one.messages for one in found), sum(one.plain for one in found)


def test_the_express_decision_and_the_rules_give_the_same_answers_and_rows() -> None:
    items, express, left = decided(range(SEEDS))
    assert express > items / 4
    assert left > 50


def test_the_plain_reader_accepts_what_the_full_readers_accept() -> None:
    messages, plain = read(range(40))
    assert plain > messages / 10


def test_a_planted_difference_in_the_decision_is_found() -> None:
    def is_new(items: Sequence[EventItem], known: object, seen: set[bytes]) -> bool:
        return all(item.flaw is None and item.key not in seen for item in items)

    with patch.object(plain_submit, "_is_plain", is_new), pytest.raises(AssertionError):
        decided(range(SEEDS))


def _unsorted(names: tuple[str, ...]) -> Any:
    return PartitionSet(names, json.dumps(names).encode(), tuple(name.encode() for name in names))


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("print_parsed", lambda event: json.dumps(event, sort_keys=True, separators=(",", ":")).encode()),
        ("checked", _unsorted),
        ("_LEVELS", 70),
    ],
)
def test_a_planted_difference_in_the_reader_is_found(name: str, planted: object) -> None:
    with patch.object(plain_message, name, planted), pytest.raises(AssertionError):
        read(range(40))


# ---- Connections ----


class Twins:
    """Two servers that get the same messages: the first takes plain submissions, the second does not."""

    def __init__(self, fast: InProcess, full: InProcess) -> None:
        full.service.takes_plain = False
        self._servers = (fast, full)
        self._clients: list[tuple[PipeClient, PipeClient]] = []
        self._sent: list[int] = []

    async def connect(self, *partitions: str) -> None:
        """A client on each server."""
        fast, full = [await server.connect(partitions) for server in self._servers]
        self._clients.append((fast, full))
        self._sent.append(len(fast.messages))

    async def send(self, number: int, texts: list[bytes]) -> None:
        """These messages at once on one connection; each has an answer."""
        self._sent[number] += len(texts)
        for client in self._clients[number]:
            client.send(*texts)
            for _ in range(TURNS):
                if sum(not _is_push(one) for one in client.read()) >= self._sent[number]:
                    break
                await asyncio.sleep(0)

    def compare(self) -> None:
        """Every client has got the same answers and the same broadcasts from both servers."""
        for fast, full in self._clients:
            for is_push in (False, True):
                got, wanted = ([one for one in client.read() if _is_push(one) == is_push] for client in (fast, full))
                assert _timeless(got) == _timeless(wanted)


def _is_push(message: dict[str, Any]) -> bool:
    return bool(message["type"] == "event_broadcast")


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: 0 if name in CLOCKS else _timeless(one) for name, one in value.items()}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def item(sent_id: str, value: int = 0, **more: Any) -> dict[str, Any]:
    """An item in the partition that all connections hear."""
    return {"id": sent_id, "partitions": ["p"], "event": {"type": "t", "value": value}, **more}


def test_a_connection_gets_the_same_answers_and_broadcasts_by_either_path(tmp_path: Path) -> None:
    chance = random.Random(7)
    odd: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: item("", 1),
        lambda: item("x" * 200),
        lambda: item("bad", partition="p"),
        lambda: item(f"init-{chance.random()}") | {"event": {"type": "init"}},
        lambda: item(chance.choice(ids), 99),
    )
    ids: list[str] = []
    taken: list[int] = []

    async def test() -> None:
        async with in_process(tmp_path / "a") as fast, in_process(tmp_path / "b") as full:
            twins = Twins(fast, full)
            for _ in range(3):
                await twins.connect("p")
            for _ in range(60):
                texts = []
                for _ in range(chance.randrange(1, 6)):
                    items = []
                    for _ in range(chance.choice((1, 1, 3))):
                        if ids and chance.random() < 0.2:
                            items.append(item(chance.choice(ids)))
                        elif ids and chance.random() < 0.1:
                            items.append(chance.choice(odd)())
                        else:
                            ids.append(f"e{len(ids)}")
                            items.append(item(ids[-1]))
                    texts.append(request("submit_events", {"events": items}, f"m{chance.random()}"))
                with patch.object(EventSubmissions, "hand_over_plain", _counted(taken)):
                    await twins.send(chance.randrange(3), texts)
                for server in (fast, full):
                    await _quiet(server)  # a repeated event is broadcast to its client only if it was broadcast before
                twins.compare()
            assert len(taken) > 50
            assert fast.service.counts == full.service.counts

    asyncio.run(test())


def _counted(taken: list[int]) -> Callable[..., bool]:
    """Admits a plain submission, and counts it."""
    admit = EventSubmissions.hand_over_plain

    def hand_over_plain(submissions: EventSubmissions, command: EventSubmit, size: int, reply_to: str | None) -> bool:
        taken.append(size)
        return admit(submissions, command, size, reply_to)

    return hand_over_plain


async def _quiet(server: InProcess) -> None:
    """Wait until every subscriber has every event."""
    head = await server.context.engine.read(head_of)
    for _ in range(2_000):
        if server.service.feed.position >= head.last_id:
            await asyncio.sleep(0)  # held frames are written
            await asyncio.sleep(0)
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the feed has not reached the end of the log")


def test_a_full_submission_does_not_overtake_a_plain_one_of_its_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with in_process(tmp_path) as server:
            client = await server.connect()
            plain, full = item("first"), item("second", extra=1)
            later = item("third")
            texts = [request("submit_events", {"events": [one]}) for one in (plain, full, later)]
            client.send(*texts)
            answers = (await client.until(4))[1:]
            results = [one["payload"]["results"][0] for one in answers]
            assert [one["id"] for one in results] == ["first", "second", "third"]
            assert [one["committed_id"] for one in results] == [1, 2, 3]

    asyncio.run(test())
