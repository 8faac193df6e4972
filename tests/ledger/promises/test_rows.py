"""Every row of the rule table, with the server that committed, and again after it was killed and started again.

A test's id names the row. Three commits stand behind each: the first with a key and a sequence, the second with a
sequence alone, the third with a key alone. `forgotten` rows look back at commits that are older than the memory of
their organization, in a vault that keeps all bodies (`whole`) or only the newest (`compacted`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.ledger.rig import Ledger, Site, Told, serving
from tests.ledger.words import WIRES, Message, Place, fresh, new_key, put, refused, relate

ERAS = ("memory-hot", "sqlite-hot", "sqlite-cold", "postgres-hot", "postgres-cold")
TTL_SECONDS = 1
AGE_SECONDS = 2.1
"""More than the time to live, also when both instants are taken as whole seconds."""
LAST = 3
FIRST_OPS = (put("a", "bc"), put("b", "1"))
SECOND_OPS = (put("a", "bc", must_exists=True), relate("doc:1", "viewer", "user:1"))
NEW_OPS = (put("new", "n"),)
FIRST, SECOND, THIRD, NEW = range(4)

FIRST_KEY, THIRD_KEY, NEW_KEY = "first", "third", "new"
NO_KEY, ZERO_KEY, SHORT_KEY, LONG_KEY = "", "zero", "short", "long"


class Row(NamedTuple):
    """A request: which key, sequence and payload it has; what must come of it, and which commit that is about."""

    name: str
    key: str
    sequence: int | None
    payload: int
    outcome: str
    about: int = FIRST


ROWS = (
    Row("R0a-short-key", SHORT_KEY, LAST + 1, NEW, "invalid"),
    Row("R0a-short-key-alone", SHORT_KEY, None, NEW, "invalid"),
    Row("R0a-long-key", LONG_KEY, None, NEW, "invalid"),
    Row("R0a-sequence-zero", NO_KEY, 0, NEW, "invalid"),
    Row("R0a-sequence-zero-new-key", NEW_KEY, 0, NEW, "invalid"),
    Row("R0a-sequence-zero-known-key", FIRST_KEY, 0, FIRST, "invalid"),
    Row("R0b-neither", NO_KEY, None, NEW, "invalid"),
    Row("R0b-zero-key", ZERO_KEY, None, NEW, "invalid"),
    Row("R1-no-sequence", FIRST_KEY, None, NEW, "reused", FIRST),
    Row("R1-same-sequence", FIRST_KEY, 1, NEW, "reused", FIRST),
    Row("R1-other-sequence", FIRST_KEY, 2, SECOND, "reused", FIRST),
    Row("R1-next-sequence", FIRST_KEY, LAST + 1, NEW, "reused", FIRST),
    Row("R1-gap", FIRST_KEY, LAST + 9, NEW, "reused", FIRST),
    Row("R1-assigned", THIRD_KEY, None, NEW, "reused", THIRD),
    Row("R2", FIRST_KEY, None, FIRST, "replay", FIRST),
    Row("R2-assigned", THIRD_KEY, None, THIRD, "replay", THIRD),
    Row("R3", FIRST_KEY, 1, FIRST, "replay", FIRST),
    Row("R3-assigned", THIRD_KEY, LAST, THIRD, "replay", THIRD),
    Row("R4-below", FIRST_KEY, 2, FIRST, "committed", FIRST),
    Row("R4-last", FIRST_KEY, LAST, FIRST, "committed", FIRST),
    Row("R4-next", FIRST_KEY, LAST + 1, FIRST, "committed", FIRST),
    Row("R4-beyond", FIRST_KEY, LAST + 9, FIRST, "committed", FIRST),
    Row("R4-assigned", THIRD_KEY, 1, THIRD, "committed", THIRD),
    Row("R5", NEW_KEY, None, NEW, "executed"),
    Row("R5-known-payload", NEW_KEY, None, FIRST, "executed"),
    Row("R6-new-key", NEW_KEY, LAST + 1, NEW, "executed"),
    Row("R6-no-key", NO_KEY, LAST + 1, NEW, "executed"),
    Row("R6-zero-key", ZERO_KEY, LAST + 1, NEW, "executed"),
    Row("R6-known-payload", NO_KEY, LAST + 1, FIRST, "executed"),
    Row("R7-new-key", NEW_KEY, LAST + 2, NEW, "gap"),
    Row("R7-no-key", NO_KEY, LAST + 2, NEW, "gap"),
    Row("R7-far", NO_KEY, 2**64 - 1, NEW, "gap"),
    Row("R8-no-key", NO_KEY, 1, FIRST, "replay", FIRST),
    Row("R8-zero-key", ZERO_KEY, 1, FIRST, "replay", FIRST),
    Row("R8-assigned", NO_KEY, LAST, THIRD, "replay", THIRD),
    Row("R8-never-a-key", NO_KEY, 2, SECOND, "replay", SECOND),
    Row("R8-new-key-for-none", NEW_KEY, 2, SECOND, "replay", SECOND),
    Row("R9", NEW_KEY, 1, FIRST, "committed by another key", FIRST),
    Row("R9-assigned", NEW_KEY, LAST, THIRD, "committed by another key", THIRD),
    Row("R10-new-key", NEW_KEY, 1, NEW, "reused sequence", FIRST),
    Row("R10-no-key", NO_KEY, 1, NEW, "reused sequence", FIRST),
    Row("R10-never-a-key", NO_KEY, 2, FIRST, "reused sequence", SECOND),
    Row("R10-new-key-for-none", NEW_KEY, 2, FIRST, "reused sequence", SECOND),
    Row("R10-last", NO_KEY, LAST, FIRST, "reused sequence", THIRD),
)

WHOLE = (
    Row("R8-forgotten", NO_KEY, 1, FIRST, "replay", FIRST),
    Row("R8-forgotten-its-key", FIRST_KEY, 1, FIRST, "replay", FIRST),
    Row("R10-forgotten", NO_KEY, 1, NEW, "reused sequence", FIRST),
    Row("R10-forgotten-its-key", FIRST_KEY, 1, NEW, "reused sequence", FIRST),
)
COMPACTED = (
    Row("R11-same", NO_KEY, 1, FIRST, "unverified", FIRST),
    Row("R11-other", NO_KEY, 1, NEW, "unverified", FIRST),
    Row("R11-new-key", NEW_KEY, 1, FIRST, "unverified", FIRST),
    Row("R11-its-key", FIRST_KEY, 1, FIRST, "unverified", FIRST),
)
FORGOTTEN = {"whole": WHOLE, "compacted": COMPACTED}


class Past(NamedTuple):
    """The commits that a row looks back at."""

    place: Place
    client: str
    keys: dict[str, bytes | None]
    commits: tuple[Told, ...]
    payloads: tuple[tuple[Message, ...], ...]


class Begun(NamedTuple):
    """A stream whose first commit has to grow old."""

    place: Place
    client: str
    keys: dict[str, bytes | None]
    first: Told


class World:
    """A site on one store, with a past for every test of the module; those of the later era are never asked before."""

    def __init__(self, site: Site, eras: list[str]) -> None:
        self.site = site
        self._has_crashed = False
        wanted = [(era, via) for era in eras for via in WIRES]
        aged = [(era, via, kind) for era, via in wanted for kind in FORGOTTEN]
        with ThreadPoolExecutor(8) as pool:
            begun = list(pool.map(lambda each: self._begin(*each), aged))
            born = time.monotonic()
            rows = [(era, via, row.name) for era, via in wanted for row in ROWS]
            place = site.ledger("http").new_place()
            self.pasts = dict(zip(rows, pool.map(lambda each: self._live(each[1], place), rows), strict=True))
            time.sleep(max(0.0, born + AGE_SECONDS - time.monotonic()))
            self.old = dict(zip(aged, pool.map(self._forget, [via for _, via, _ in aged], begun), strict=True))

    def client(self, via: str) -> Ledger:
        return self.site.ledger(via, pinned=True)

    def enter(self, is_cold: bool) -> None:
        """The later era begins with a kill."""
        if is_cold and not self._has_crashed:
            self.site.crash()
            self._has_crashed = True

    def _live(self, via: str, place: Place) -> Past:
        ledger, client, keys = self.client(via), fresh("client"), _keys()
        third_ops = (put(fresh("c"), "3", not_exists=True),)
        commits = (
            ledger.commit(place, client, *FIRST_OPS, sequence=1, key=keys[FIRST_KEY]),
            ledger.commit(place, client, *SECOND_OPS, sequence=2),
            ledger.commit(place, client, *third_ops, key=keys[THIRD_KEY]),
        )
        return Past(place, client, keys, commits, (FIRST_OPS, SECOND_OPS, third_ops, NEW_OPS))

    def _begin(self, era: str, via: str, kind: str) -> Begun:
        ledger, client, keys = self.client(via), fresh("client"), _keys()
        org = ledger.new_org(ttlSeconds=TTL_SECONDS, evictionInterval=1)
        place = ledger.new_vault(org, keep=1 if kind == "compacted" else None)
        first = ledger.commit(place, client, *FIRST_OPS, sequence=1, key=keys[FIRST_KEY])
        return Begun(place, client, keys, first)

    def _forget(self, via: str, begun: Begun) -> Past:
        """The next commits of the stream leave the first one behind."""
        ledger, place, client = self.client(via), begun.place, begun.client
        later = [ledger.commit(place, client, *SECOND_OPS, sequence=number) for number in (2, LAST)]
        return Past(place, client, begun.keys, (begun.first, *later), (FIRST_OPS, SECOND_OPS, SECOND_OPS, NEW_OPS))


def _keys() -> dict[str, bytes | None]:
    made: dict[str, bytes | None] = {name: new_key() for name in (FIRST_KEY, THIRD_KEY, NEW_KEY)}
    return made | {NO_KEY: None, ZERO_KEY: bytes(16), SHORT_KEY: b"short", LONG_KEY: bytes(range(17))}


@pytest.fixture(scope="module")
def world_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], World]]:
    """The world of each store, made when it is first asked for."""
    folder: Path = tmp_path_factory.mktemp("rows")
    made: dict[str, World] = {}
    with ExitStack() as stack:

        def make(store: str) -> World:
            if store not in made:
                site = stack.enter_context(serving(folder / store, store))
                made[store] = World(site, [era for era in ERAS if era.startswith(store)])
            return made[store]

        yield make


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest, world_of: Callable[[str], World]) -> tuple[str, World]:
    name: str = request.param
    world = world_of(name.partition("-")[0])
    world.enter(name.endswith("-cold"))
    return name, world


@pytest.mark.each_store
@pytest.mark.parametrize("via", WIRES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(era: tuple[str, World], row: Row, via: str) -> None:
    name, world = era
    judge(world.client(via), world.pasts[name, via, row.name], row, is_cold=name.endswith("-cold"))


@pytest.mark.each_store
@pytest.mark.parametrize("via", WIRES)
@pytest.mark.parametrize("row", [*WHOLE, *COMPACTED], ids=lambda row: row.name)
def test_row_of_forgotten_commits(era: tuple[str, World], row: Row, via: str) -> None:
    name, world = era
    kind = "whole" if row in WHOLE else "compacted"
    judge(world.client(via), world.old[name, via, kind], row, is_cold=None)


def judge(ledger: Ledger, past: Past, row: Row, *, is_cold: bool | None) -> None:
    """Send it, see what comes, and see what it changed."""
    place, client = past.place, past.client
    height, last = ledger.height(place), ledger.last(place, client)
    assert last == LAST
    send = partial(
        ledger.write, place, client, *past.payloads[row.payload], sequence=row.sequence, key=past.keys[row.key]
    )
    if row.outcome == "invalid":
        with refused("INVALID_ARGUMENT", "3203"):
            send()
    elif row.outcome == "executed":
        check_executed(ledger, past, send, height)
        height, last = height + 1, last + 1
    elif row.outcome == "replay":
        check_replayed(ledger, send(), past.commits[row.about], is_cold=is_cold)
    else:
        CHECKS[row.outcome](send(), past.commits[row.about], row)
    assert (ledger.height(place), ledger.last(place, client)) == (height, last)


def check_executed(ledger: Ledger, past: Past, send: Callable[[], Told], height: int) -> None:
    told = send()
    assert (told.code, told.sequence, told.height) == ("OK", LAST + 1, height + 1), told
    assert told.tx not in {commit.tx for commit in past.commits}
    assert not told.is_marked
    assert ledger.transaction(past.place, height + 1)["sequence"] == str(LAST + 1)


def check_replayed(ledger: Ledger, told: Told, first: Told, *, is_cold: bool | None) -> None:
    """Hot and cold differ over gRPC alone; what was forgotten may come in either form."""
    if is_cold is None:
        ledger.check_replay(told, first)
    elif is_cold and ledger.via == "grpc":
        ledger.check_cold(told, first)
    else:
        ledger.check_hot(told, first)


def check_reused(told: Told, first: Told, row: Row) -> None:
    assert (told.code, told.tx, told.sequence) == ("IDEMPOTENCY_KEY_REUSED", first.tx, first.sequence), told
    assert "conflict" not in told.details or row.outcome == "reused sequence", told


def check_reused_sequence(told: Told, first: Told, row: Row) -> None:
    check_reused(told, first, row)
    assert told.details["conflict"] == "sequence", told


def check_committed(told: Told, first: Told, row: Row) -> None:
    assert (told.code, told.facts) == ("ALREADY_COMMITTED", first.facts), told
    assert told.last == LAST, told


def check_other_key(told: Told, first: Told, row: Row) -> None:
    assert (told.code, told.facts) == ("ALREADY_COMMITTED", first.facts), told
    assert "key" in told.error["message"].lower(), told


def check_gap(told: Told, first: Told, row: Row) -> None:
    assert (told.code, told.last, told.tx) == ("SEQUENCE_GAP", LAST, None), told


def check_unverified(told: Told, first: Told, row: Row) -> None:
    assert (told.code, told.facts) == ("ALREADY_COMMITTED", (None, None, row.sequence)), told
    assert "original" not in told.error, told
    assert told.details["verified"] == "false", told


CHECKS: dict[str, Callable[[Told, Told, Row], None]] = {
    "reused": check_reused,
    "reused sequence": check_reused_sequence,
    "committed": check_committed,
    "committed by another key": check_other_key,
    "gap": check_gap,
    "unverified": check_unverified,
}
