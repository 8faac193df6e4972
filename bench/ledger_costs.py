"""What is measured of a ledger as it grows: building proofs, and what a change of its state costs.

All of it in the one thread that does the work, and without a wire around it, which would add the same to ledgers of all
sizes. Nothing is left behind: a ledger has the same size before and after.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from bench.ledger_stores import CLIENTS, PLACE, Site, Size, key_of
from semel.engine.batch import run
from semel.engine.contract import Stage
from semel.engine.reading import Reading
from semel.engine.view import BatchView
from semel.store.protocol import AnyTable, Tx
from semel.store.table import Key
from semel.surfaces.ledger.commands import CommittedTransaction
from semel.surfaces.ledger.model import SetEntity
from semel.surfaces.ledger.proofs import prove_entity
from semel.surfaces.ledger.reading import block, tx_proof
from semel.surfaces.ledger.rules.group_rows import PageCache, WorkingRows
from semel.surfaces.ledger.rules.state import HeldEntity, State, load_state, page_needs, store_state
from semel.surfaces.ledger.tables import LEDGER_ENTITY, LEDGER_PLACE, LEDGER_TOPS

PROOFS, TOGETHER = 100, 64
"""So many proofs, and so many transactions, are made for one figure."""
NEW_VALUE = b"w"


class Cost(NamedTuple):
    """What one of many cost, in microseconds."""

    elapsed: float
    processor: float


Measure = Callable[[Site, Size, random.Random], Cost]


class Watch:
    """Adds up time and processor time of this thread."""

    def __init__(self) -> None:
        self._elapsed = self._processor = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens in here."""
        began, used = time.perf_counter_ns(), time.thread_time_ns()
        try:
            yield
        finally:
            self._processor += time.thread_time_ns() - used
            self._elapsed += time.perf_counter_ns() - began

    def each(self, number: int) -> Cost:
        """The cost of one of so many."""
        return Cost(self._elapsed / 1_000 / number, self._processor / 1_000 / number)


def inclusion(reading: Reading, size: Size, chance: random.Random) -> None:
    """Transaction, header and proof of any block."""
    found = block(reading, PLACE, chance.randrange(size.blocks) + 1)
    assert found is not None
    assert found.transaction is not None
    assert tx_proof(CommittedTransaction(found.transaction, found.header)).leaf == found.header.tx_root


def present_now(reading: Reading, size: Size, chance: random.Random) -> None:
    """The state proof of any key."""
    assert prove_entity(reading, PLACE, key_of(chance.randrange(size.keys)), None).entity is not None


def absent_now(reading: Reading, size: Size, chance: random.Random) -> None:
    """The proof that there is none under a key."""
    assert prove_entity(reading, PLACE, key_of(size.keys + chance.randrange(size.keys)), None).entity is None


def present_before(reading: Reading, size: Size, chance: random.Random) -> None:
    """The state proof of a key at an older height."""
    height = chance.randrange(size.blocks // 2) + 1
    assert prove_entity(reading, PLACE, key_of(chance.randrange(size.keys_at(height))), height).entity is not None


def absent_before(reading: Reading, size: Size, chance: random.Random) -> None:
    """The proof that there was none yet; perhaps it came later."""
    height = chance.randrange(size.blocks // 2) + 1
    key = key_of(size.keys_at(height) + chance.randrange(size.keys))
    assert prove_entity(reading, PLACE, key, height).entity is None


def proof(build: Callable[[Reading, Size, random.Random], None]) -> Measure:
    """A measure of proofs: each of another block or key, and each in a reading of its own, as requests have them."""

    def measure(site: Site, size: Size, chance: random.Random) -> Cost:
        watch = Watch()
        with watch.running():
            for _ in range(PROOFS):
                with site.reading() as reading:
                    build(reading, size, chance)
        return watch.each(PROOFS)

    return measure


def update(site: Site, size: Size, chance: random.Random) -> Cost:
    """What the state root alone costs: the pages on the ways to some keys, loaded at once, and the tree after each."""
    watch = Watch()
    keys = [key_of(number) for number in chance.sample(range(size.keys), TOGETHER)]
    cache = PageCache(0)
    tx = site.store.begin(())
    try:
        view = BatchView(lambda order: False, lambda table, row: row)
        entities = ((LEDGER_ENTITY, (*PLACE, key)) for key in keys)
        _load(tx, view, [(LEDGER_TOPS, PLACE), (LEDGER_PLACE, PLACE), *entities])
        with watch.running():
            for stage in _stages(view, keys, cache):
                _load(tx, view, stage.keys)
            rows = WorkingRows(view, cache)
            place = rows.place(PLACE)
            assert place is not None, "the vault is missing"
            for key in keys:
                after: State = {key: HeldEntity(key, NEW_VALUE, len(NEW_VALUE), b"", 0, place.height + 1)}
                before = load_state(view, PLACE, [SetEntity(key, NEW_VALUE)])
                place.state_root, _ = store_state(rows, place, before, after)
                place.height += 1
            rows.store()
    finally:
        tx.rollback()
    return watch.each(TOGETHER)


def _stages(view: BatchView, keys: list[bytes], cache: PageCache) -> Iterator[Stage]:
    needs = page_needs(view, {PLACE: keys}, cache)
    with contextlib.suppress(StopIteration):
        yield next(needs)
        while True:
            yield needs.send(view)


def _load(tx: Tx, view: BatchView, keys: Iterable[tuple[AnyTable, Key]]) -> None:
    wanted: dict[AnyTable, list[Key]] = {}
    for table, key in keys:
        wanted.setdefault(table, []).append(key)
    loaded = tx.load(wanted, ())
    for table, some in wanted.items():
        for key in some:
            view.add_row(table, key, loaded.rows[table].get(key))


class EnoughError(Exception):
    """Stops a batch before its commit, so that nothing is kept."""


def decision(number: int) -> Measure:
    """Everything that a transaction with one operation costs before its commit, so many of them in a batch."""

    def measure(site: Site, size: Size, chance: random.Random) -> Cost:
        watch = Watch()
        around = replace(site.around, reach=_stop)
        for _ in range(TOGETHER // number):
            keys = chance.sample(range(size.keys), number)
            # Clients that are new to the ledger, so that each begins with its first sequence.
            commands = [site.write(CLIENTS + client, 1, [key], NEW_VALUE) for client, key in enumerate(keys)]
            batch = [site.submission(command) for command in commands]
            with watch.running(), contextlib.suppress(EnoughError):
                run(around, batch)
        return watch.each(TOGETHER)

    return measure


def _stop(point: str) -> None:
    if point == "flushed":
        raise EnoughError


PROOF_MEASURES: Mapping[str, Measure] = {
    "transaction in its block": proof(inclusion),
    "present key, now": proof(present_now),
    "absent key, now": proof(absent_now),
    "present key, at an old height": proof(present_before),
    "absent key, at an old height": proof(absent_before),
}
ROOT_MEASURES: Mapping[str, Measure] = {
    "state root": update,
    f"transaction, {TOGETHER} a batch": decision(TOGETHER),
    "transaction alone": decision(1),
}
