"""Streams that end between two steps of the dispatcher: no link is left behind, and no mark is lost.

Each command is one commit, in the order of the race.
"""

from __future__ import annotations

from typing import Any

import pytest

from semel.engine.batch import steps_of
from semel.engine.clock import DecisionClock
from semel.engine.contract import Write
from semel.engine.group_commit import QueuedWrite, SilentObserver, drive
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.kernel.keys import pack
from semel.kernel.verdict import Window
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable
from semel.surfaces.epoch import EPOCH
from semel.surfaces.streams.commands import NO_CONTENT, Append, Content, Create, Delete
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.subscriptions.commands import (
    LinksAdopt,
    MarkSettle,
    NamedStream,
    PendingMark,
    StreamLinksFree,
    SubscriptionLimits,
    SubscriptionPut,
)
from semel.surfaces.streams.subscriptions.contract import SubscriptionContract
from semel.surfaces.streams.subscriptions.tables import EXPLICIT, LINK, MOVED, PULL_WAKE, LinkRow, MovedRow
from semel.surfaces.streams.tables import TABLES
from tests.engine.toy import ToyWorld

PATH = b"events/a"
SCOPE = pack(PATH)
NAME, LIFE = pack(b"sub"), b"s" * 16
TYPE = b"application/json"


class Commits:
    """A store, and one commit for each command."""

    def __init__(self) -> None:
        world = ToyWorld()
        self.store = MemoryStore((*TABLES, EPOCH), world.wall_ms)
        self._streams = Streams(Window(1_000))
        self._subscriptions = SubscriptionContract(SubscriptionLimits())
        self._around = Surroundings(
            store=self.store,
            soft=SoftChanges(),
            timekeeper=DecisionClock(world, SilentObserver()),
            observer=SilentObserver(),
            error_id=lambda: "fault",
            is_admitted=lambda order: False,
            reach=lambda point: None,
        )

    def __call__(self, command: Any) -> Any:
        is_of_stream = isinstance(command, Create | Append | Delete)
        contract = self._streams if is_of_stream else self._subscriptions
        result = drive(steps_of(self._around, [QueuedWrite(Write(contract, command))]))
        [(_, outcome)] = result.decided
        return outcome.answer

    def rows(self, table: AnyTable) -> list[Any]:
        return list(self.store._heaps[table].rows.values())

    def create(self) -> None:
        self(Create(SCOPE, PATH, b"l" * 16, TYPE, None, None, None, False, NO_CONTENT))

    def append(self) -> None:
        self(Append(SCOPE, None, b"", TYPE, Content(b"1", 1), False, None, None, None))

    def subscribe(self, *streams: bytes) -> None:
        named = tuple(NamedStream(pack(one), one) for one in streams)
        command = SubscriptionPut(
            NAME, LIFE, b"sub", PULL_WAKE, b"events/*", named, None, b"wakes", 30_000, None, b"", b""
        )
        self(command)

    @property
    def mark(self) -> MovedRow:
        [mark] = self.rows(MOVED)
        assert isinstance(mark, MovedRow)
        return mark


@pytest.fixture
def commit() -> Commits:
    return Commits()


def test_a_stream_that_ends_while_its_mark_is_carried_leaves_a_mark_again(commit: Commits) -> None:
    commit.create()
    commit.subscribe()
    commit(LinksAdopt(NAME, LIFE, (SCOPE,)))
    commit.append()
    seen = commit.mark
    commit(PendingMark(NAME, LIFE, (SCOPE,)))
    commit(Delete(SCOPE))
    commit(MarkSettle(seen.scope, seen.stream_id, seen.tail))
    ended = commit.mark
    commit(StreamLinksFree(SCOPE, ((NAME, LIFE),)))
    commit(MarkSettle(ended.scope, ended.stream_id, ended.tail))
    assert commit.rows(LINK) == []
    assert commit.rows(MOVED) == []


def test_a_stream_that_ends_before_its_link_is_adopted_leaves_no_link(commit: Commits) -> None:
    commit.create()
    commit.subscribe()
    commit(Delete(SCOPE))
    commit(LinksAdopt(NAME, LIFE, (SCOPE,)))
    assert commit.rows(LINK) == []


def test_an_explicit_link_stays_when_its_stream_ends_before_it_is_adopted(commit: Commits) -> None:
    commit.create()
    commit.subscribe(PATH)
    commit(Delete(SCOPE))
    commit(LinksAdopt(NAME, LIFE, (SCOPE,)))
    [link] = commit.rows(LINK)
    assert isinstance(link, LinkRow)
    assert link.kind == EXPLICIT
    commit.create()
    commit.append()
    assert commit.mark.tail == 1
