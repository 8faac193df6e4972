"""Subscriptions as a model: clients, two dispatchers, a receiver and workers take turns by chance, and nodes die.

The rules run on the store in memory. A dispatcher is a generator that stops after each read and each write, so that
everything else may happen in between, with what it has read growing old. Killing a node forgets its generator and its
attempts. Checked at every wake: it begins neither behind content that no wake before it has covered, nor before an
offset whose ack was stored. Checked at the end, once everything has come to rest by wakes alone: every cursor stands at
the tail of its stream. `python -m tests.streams.subscriptions.model --seeds 1000` runs as many as you like.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from semel.engine.batch import run
from semel.engine.clock import DecisionClock
from semel.engine.contract import Write
from semel.engine.group_commit import QueuedWrite, SilentObserver
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.kernel.keys import pack
from semel.kernel.verdict import Window
from semel.store.memory import MemoryStore
from semel.store.protocol import Range
from semel.surfaces.epoch import EPOCH
from semel.surfaces.streams.commands import NO_CONTENT, Append, Content, Create, Delete
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.rules.offsets import parse_offset
from semel.surfaces.streams.subscriptions.commands import (
    AttemptResult,
    LeaseProof,
    LinksAdopt,
    LinksFree,
    MarkSettle,
    NamedStream,
    PendingMark,
    StreamAck,
    StreamLinksFree,
    StreamsLink,
    StreamUnlink,
    SubscriptionDelete,
    SubscriptionLimits,
    SubscriptionPut,
    WakeAck,
    WakeAcked,
    WakeClaim,
    WakeClaimed,
    WakeItem,
    WakeOutcome,
    WakeRelease,
    WakeStart,
    WakeStarted,
)
from semel.surfaces.streams.subscriptions.contract import SubscriptionContract
from semel.surfaces.streams.subscriptions.reading import backlog, grave_scopes, marked, marks, new_links
from semel.surfaces.streams.subscriptions.rules.globs import matches
from semel.surfaces.streams.subscriptions.tables import (
    ENDED,
    LINK,
    MOVED,
    PULL_WAKE,
    SUBSCRIPTION,
    WEBHOOK,
    LinkRow,
    SubscriptionRow,
)
from semel.surfaces.streams.tables import STREAM, TABLES, StreamRow
from tests.engine.toy import ToyWorld

T = TypeVar("T")
NAMES = ("e/0", "e/1", "e/2", "f/0")
WAKE = b"wake"
KINDS = {b"hook": WEBHOOK, b"pull": PULL_WAKE, b"named": WEBHOOK}
LEASE_MS = 5_000
LIMITS = SubscriptionLimits(attempt_ms=2_000)


class HeldWake(NamedTuple):
    """A wake that a receiver or a worker has seen."""

    row: SubscriptionRow
    items: tuple[WakeItem, ...]
    lives: dict[bytes, bytes]
    """The id of each stream when the wake was made."""


class SubscriptionModel:
    """One run under a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._world = ToyWorld()
        self._store = MemoryStore((*TABLES, EPOCH), self._world.wall_ms)
        self._soft = SoftChanges()
        self._clock = DecisionClock(self._world, SilentObserver())
        self._around = Surroundings(
            self._store,
            self._soft,
            self._clock,
            SilentObserver(),
            lambda: "fault",
            lambda order: False,
            lambda at: None,
        )
        self._streams = Streams(Window(1_000))
        self._subscriptions = SubscriptionContract(LIMITS)
        self._numbers = 0
        self._nodes = [self._node(b"node-0"), self._node(b"node-1")]
        self._attempts: list[tuple[int, HeldWake]] = []
        self._seen: list[HeldWake] = []
        self._covered: dict[tuple[bytes, bytes], int] = {}
        """By life of subscription and of stream: the position up to which a wake was made or the link began."""
        self._acked: dict[tuple[bytes, bytes], int] = defaultdict(int)
        self._generations: dict[tuple[bytes, int], bytes] = {}
        self.wakes = self.kills = self.fenced = 0

    def read(self, look: Callable[[Reading], T]) -> T:
        """Read in one snapshot."""
        with self._store.read() as snapshot:
            return look(Reading(snapshot, self._soft, self._clock.now(snapshot.now_ms)))

    def write(self, *commands: Any) -> list[Any]:
        """Write commands in one batch; their answers."""
        of_streams = (Create, Append, Delete)
        writes = [
            QueuedWrite(Write(self._streams if isinstance(one, of_streams) else self._subscriptions, one))
            for one in commands
        ]
        answers: dict[int, Any] = {}
        while writes:
            result = run(self._around, writes)
            assert not result.failed, result.failed
            answers |= {id(one.write.command): outcome.answer for one, outcome in result.decided}
            writes = list(result.deferred)
        return [answers[id(command)] for command in commands]

    def number(self) -> int:
        """A number that was not given before."""
        self._numbers += 1
        return self._numbers

    def stream(self, path: bytes) -> StreamRow | None:
        """The stream of a name."""
        return self.read(lambda reading: reading.get(STREAM, (pack(path),)))

    def step(self) -> None:
        """One thing happens."""
        actions: Sequence[tuple[Callable[[], None], int]] = (
            (self._client, 8),
            (self._advance, 14),
            (self._receive, 5),
            (self._call_back, 3),
            (self._work, 3),
            (self._pass_time, 2),
            (self._configure, 2),
            (self._kill, 1),
        )
        self.chance.choices([one for one, _ in actions], [weight for _, weight in actions])[0]()

    def _client(self) -> None:
        """Up to three writes of clients in one batch."""
        self.write(*(self._client_command() for _ in range(self.chance.choice((1, 1, 2, 3)))))
        self._note_links()

    def _client_command(self) -> Any:
        path = self.chance.choice((*NAMES, WAKE.decode())).encode()
        draw = self.chance.random()
        content = Content(b"x" * self.chance.randrange(1, 4), 1)
        if draw < 0.3:
            first = self.chance.choice((NO_CONTENT, content)) if path != WAKE else NO_CONTENT
            life = b"s%d" % self.number()
            return Create(pack(path), path, life, b"application/json", None, None, None, False, first)
        if draw < 0.9 or path == WAKE:
            return Append(pack(path), None, b"", b"application/json", content, False, None, None, None)
        return Delete(pack(path))

    def _configure(self) -> None:
        name = self.chance.choice(list(KINDS))
        row = self.read(lambda reading: reading.get(SUBSCRIPTION, (pack(name),)))
        draw = self.chance.random()
        if row is None or draw < 0.3:
            self.write(self._put(name))
        elif draw < 0.5:
            self.write(SubscriptionDelete(row.name))
        else:
            path = self.chance.choice(NAMES).encode()
            named = NamedStream(pack(path), path)
            if draw < 0.8:
                self.write(StreamsLink(row.name, row.life, (named,)))
            else:
                self.write(StreamUnlink(row.name, row.life, named))
        self._note_links(are_at_tail=True)

    def _put(self, name: bytes) -> SubscriptionPut:
        pattern = None if name == b"named" else b"e/*"
        named = (NamedStream(pack(b"e/0"), b"e/0"), NamedStream(pack(b"f/0"), b"f/0")) if pattern is None else ()
        url, wake = (b"https://x", None) if KINDS[name] == WEBHOOK else (None, WAKE)
        life = b"l%d" % self.number()
        return SubscriptionPut(
            pack(name), life, name, KINDS[name], pattern, named, url, wake, LEASE_MS, None, b"", b"http://b"
        )

    def _note_links(self, *, are_at_tail: bool = False) -> None:
        """Note where links begin that were just made: those of new streams at the beginning."""
        links: Sequence[LinkRow] = self.read(lambda reading: reading.range(Range(LINK, "", (), 10_000)))
        for link in links:
            place = (link.life, link.stream_id)
            if link.stream_id and place not in self._covered:
                assert are_at_tail or link.acked == 0, "a new stream was not linked at its beginning"
                self._covered[place] = link.acked

    def _advance(self) -> None:
        place = self.chance.randrange(len(self._nodes))
        next(self._nodes[place])

    def _kill(self) -> None:
        place = self.chance.randrange(len(self._nodes))
        self._nodes[place] = self._node(b"node-%d" % self.number())
        self._attempts = [one for one in self._attempts if one[0] != place or self.chance.random() < 0.5]
        self.kills += 1

    def _pass_time(self) -> None:
        self._world.pass_ms(self.chance.choice((1, 500, 2_000, LEASE_MS, 20_000)))

    def _node(self, node: bytes) -> Generator[None, None, None]:
        """The dispatcher, one read or write at a time."""
        place = int(node.rpartition(b"-")[2]) % 2
        while True:
            for link in self.read(new_links):
                yield
                self.write(LinksAdopt(link.name, link.life, (link.scope,)))
            yield
            for mark in self.read(lambda reading: marks(reading, None)):
                yield
                found = self.read(lambda reading, scope=mark.scope: marked(reading, scope, None, 100))  # type: ignore[misc]
                for link in found.links:
                    yield
                    if found.is_present:
                        self.write(PendingMark(link.name, link.life, (link.scope,)))
                    else:
                        self.write(StreamLinksFree(link.scope, ((link.name, link.life),)))
                yield
                self.write(MarkSettle(mark.scope, mark.stream_id, mark.tail))
            yield
            todo = self.read(backlog)
            for grave in todo.graves:
                scopes = self.read(lambda reading, life=grave.life: grave_scopes(reading, life, 2))  # type: ignore[misc]
                yield
                self.write(LinksFree(grave.name, grave.life, tuple(scopes), len(scopes) < 2))
            for row in (*todo.webhooks, *todo.pulls):
                yield
                self._start(place, node, row)

    def _start(self, place: int, node: bytes, row: SubscriptionRow) -> None:
        scope = None if row.wake_stream is None else pack(row.wake_stream)
        command = WakeStart(row.name, row.life, node, b"w%d" % self.number(), self.chance.randrange(100), scope)
        [started] = self.write(command)
        if isinstance(started, WakeStarted):
            wake = self._check(started.row, started.items)
            if row.kind == WEBHOOK:
                self._attempts.append((place, wake))

    def _check(self, row: SubscriptionRow, items: tuple[WakeItem, ...]) -> HeldWake:
        """A wake was made: it goes on where the last ones ended."""
        wake_id = self._generations.setdefault((row.life, row.generation), row.wake_id)
        assert wake_id == row.wake_id, "two wakes have one generation"
        lives = {}
        for item in items:
            stream = self.stream(item.path)
            assert stream is not None
            lives[item.path] = stream.id
            acked, tail = _place(item.acked), _place(item.tail)
            place = (row.life, stream.id)
            covered = self._covered.get(place, 0)
            assert acked <= covered, f"{item.path!r}: {covered} to {acked} was skipped"
            assert acked >= self._acked[place], f"{item.path!r}: the ack of {self._acked[place]} was undone"
            assert acked < tail or not row.owner, "a wake without work"
            self._covered[place] = max(covered, tail)
        self.wakes += 1
        return HeldWake(row, items, lives)

    def _receive(self) -> None:
        if not self._attempts:
            return
        _, wake = self._attempts.pop(self.chance.randrange(len(self._attempts)))
        self._seen.append(wake)
        result = self.chance.choice((AttemptResult.DONE, AttemptResult.ACCEPTED, AttemptResult.FAILED, None))
        if result is not None:
            self._outcome(wake, result)

    def _outcome(self, wake: HeldWake, result: AttemptResult) -> None:
        row = wake.row
        command = WakeOutcome(
            row.name, row.life, row.generation, row.attempts, row.owner, result, self.chance.randrange(100)
        )
        [is_stored] = self.write(command)
        if is_stored and result is AttemptResult.DONE:
            self._note_acks(wake)

    def _note_acks(self, wake: HeldWake) -> None:
        for item in wake.items:
            place = (wake.row.life, wake.lives[item.path])
            self._acked[place] = max(self._acked[place], _place(item.tail))

    def _call_back(self) -> None:
        """A callback or ack of any wake that was seen, also of one that is long over."""
        if not self._seen:
            return
        wake = self.chance.choice(self._seen[-6:])
        self._settle(wake, done=self.chance.random() < 0.5, release=self.chance.random() < 0.2)

    def _settle(self, wake: HeldWake, *, done: bool, release: bool = False) -> None:
        row = wake.row
        proof = LeaseProof(row.name, row.life, row.generation, row.generation, row.wake_id)
        current = self.read(lambda reading: reading.get(SUBSCRIPTION, (row.name,)))
        if release and row.kind == PULL_WAKE:
            self.write(WakeRelease(proof))
            return
        acks = tuple(StreamAck(pack(item.path), item.path, parse_offset(item.tail)) for item in wake.items)
        are_same = all((one := self.stream(path)) and one.id == life for path, life in wake.lives.items())
        if not are_same:
            acks = ()  # a client would meet another stream there; the offsets are not of it
        [answer] = self.write(WakeAck(proof, row.kind, acks, done))
        if isinstance(answer, WakeAcked):
            assert current is not None
            assert (current.life, current.generation) == (row.life, row.generation), "a stale call was accepted"
            if acks:
                self._note_acks(wake)
        else:
            self.fenced += 1

    def _work(self) -> None:
        row = self.read(lambda reading: reading.get(SUBSCRIPTION, (pack(b"pull"),)))
        if row is None:
            return
        [answer] = self.write(WakeClaim(row.name, row.life, b"worker", b"w%d" % self.number()))
        if isinstance(answer, WakeClaimed):
            self._seen.append(self._check(answer.row, answer.items))

    def finish(self) -> None:
        """Let everything come to rest without further clients, then compare every cursor with its tail."""
        if self.stream(WAKE) is None:
            self.write(Create(pack(WAKE), WAKE, b"s-wake", b"application/json", None, None, None, False, NO_CONTENT))
        self._nodes = [self._node(b"last-0")]
        self._attempts.clear()
        for _ in range(400):
            for _ in range(60):
                next(self._nodes[0])
            for _, wake in self._attempts:
                self._outcome(wake, AttemptResult.DONE)
            self._attempts.clear()
            self._claim_woken()
            self._world.pass_ms(10_000)
            if self._is_quiet():
                break
        self._judge()

    def _claim_woken(self) -> None:
        """A worker claims only what a wake event has announced."""
        row = self.read(lambda reading: reading.get(SUBSCRIPTION, (pack(b"pull"),)))
        if row is None or not row.wake_id:
            return
        [answer] = self.write(WakeClaim(row.name, row.life, b"last", b"w%d" % self.number()))
        if isinstance(answer, WakeClaimed):
            self._settle(self._check(answer.row, answer.items), done=True)

    def _is_quiet(self) -> bool:
        def look(reading: Reading) -> bool:
            todo = backlog(reading)
            left = (*reading.range(Range(MOVED, "", (), 1)), *reading.range(Range(ENDED, "", (), 1)))
            return not (left or new_links(reading) or todo.webhooks or todo.pulls or todo.next_ms is not None)

        return self.read(look)

    def _judge(self) -> None:
        def look(reading: Reading) -> tuple[list[SubscriptionRow], dict[Any, LinkRow], list[StreamRow]]:
            links = {(link.life, link.path): link for link in reading.range(Range(LINK, "", (), 10_000))}
            rows = list(reading.range(Range(SUBSCRIPTION, "", (), 100)))
            return rows, links, list(reading.range(Range(STREAM, "", (), 100)))

        rows, links, streams = self.read(look)
        lives = {row.life for row in rows}
        assert all(life in lives for life, _ in links), "links of a deleted subscription are left"
        for row in rows:
            for stream in streams:
                link = links.get((row.life, stream.path))
                if row.pattern is not None and matches(row.pattern, stream.path):
                    assert link is not None, f"{row.id!r} has no link to {stream.path!r}"
                if link is not None:
                    assert stream.subscribed, f"{stream.path!r} leaves no marks"
                    acked = link.acked if link.stream_id == stream.id else 0
                    assert acked == stream.tail, f"{row.id!r} of {stream.path!r} stands at {acked} of {stream.tail}"


def _place(offset: bytes) -> int:
    parsed = parse_offset(offset)
    assert parsed is not None
    return parsed.position


def play(seed: int, steps: int = 400) -> SubscriptionModel:
    """One run, of any length up to a limit: what a later append would mend shows at the end."""
    model = SubscriptionModel(seed)
    for _ in range(model.chance.randrange(20, steps)):
        model.step()
    model.finish()
    return model


def main() -> int:
    """Play many seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    asked = parser.parse_args()
    wakes = kills = fenced = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        try:
            model = play(seed, asked.steps)
        except AssertionError as error:
            sys.stdout.write(f"seed {seed}: {error}\n")
            return 1
        wakes, kills, fenced = wakes + model.wakes, kills + model.kills, fenced + model.fenced
    sys.stdout.write(f"{asked.seeds} seeds: {wakes} wakes, {kills} kills, {fenced} fenced calls: no fault\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
