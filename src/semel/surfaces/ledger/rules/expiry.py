"""Expiry: entities that have expired are removed by transactions of the system, in the chain of their place.

The transaction is an ordinary one: actor and client are `system:gc`, with sequences of its own, and each operation is
an `ExpireEntity` with the instant at which the entity expired. The decision judges by its own clock whether an entity
has expired: one that was set with a later expiry since the chore found it stays. If none is left, nothing is written.
The rate limit of the organization does not count these transactions, and its stored bytes fall with them.

A place that accepts no writes keeps its expired entities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from hashlib import sha256

from semel.engine.contract import DecisionResult, MissingRowsError, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Range
from semel.store.table import Key
from semel.surfaces.ledger.commands import (
    CHANCE_BYTES,
    ExpireEntities,
    MaintenanceDone,
    PreparedWrite,
    WriteCommand,
)
from semel.surfaces.ledger.model import SYSTEM, ExpireEntity, LedgerPlace
from semel.surfaces.ledger.rules.chain import encode_operations, is_head, request_hash
from semel.surfaces.ledger.rules.group_rows import PageCache, WorkingPlace, WorkingRows
from semel.surfaces.ledger.rules.organizations import refuse_write
from semel.surfaces.ledger.rules.state import demand_pages, is_expired, load_state
from semel.surfaces.ledger.rules.write import commit_transaction, is_sound, topic_of, write_needs
from semel.surfaces.ledger.tables import LEDGER_BLOCK, LEDGER_ENTITY, LEDGER_ORG, LEDGER_PLACE

COLLECTOR = SYSTEM + b"gc"
"""The actor and the client of these transactions."""
EXPIRED_AT_ONCE, EXPIRED_BYTES = 256, 256 * 1024
"""Limits of entities that one transaction removes, and of bytes of their keys; a single key may have more."""
EXPIRED_PLACES = 100
"""Limit of places in one round of chores; the next round continues after them."""
KEYS_AT_ONCE, LOOKS = 1_000, 64
"""Limit of entries of the index that are read at once, and of such reads in one round."""


def expire_needs(command: ExpireEntities, cache: PageCache) -> Generator[Stage, View, None]:
    """The rows of a transaction that removes all these entities."""
    return write_needs((_transaction(command, tuple(map(ExpireEntity, command.keys)), b""),), cache)


def expire_entities(view: View, command: ExpireEntities, now: Now, cache: PageCache) -> DecisionResult:
    """Remove those of the entities that have expired; the answer has their number."""
    place = command.place
    rows = WorkingRows(view, cache)
    org, tip = rows.org(place.org), rows.place(place)
    if org is None or tip is None or refuse_write(org.before, tip.before) is not None or not is_sound(view, tip):
        return DecisionResult(MaintenanceDone())
    found = (view.get(LEDGER_ENTITY, (*place, key)) for key in command.keys)
    second = now.expiry_ms // 1_000
    expired = [row for row in found if row is not None and is_expired(row.expires_at, second)]
    if not expired:
        return DecisionResult(MaintenanceDone())
    operations = tuple(ExpireEntity(row.key, row.expires_at) for row in expired)
    transaction = _transaction(command, operations, _chance(tip))
    before = load_state(view, place, operations)
    try:
        commit_transaction(rows, transaction, org, tip, org.next_time(now), before, dict.fromkeys(before))
    except MissingRowsError:
        demand_pages(view, {place: before}, cache)
        raise
    rows.store()
    return DecisionResult(MaintenanceDone(len(expired)), signals=(topic_of(place),))


def _transaction(command: ExpireEntities, operations: tuple[ExpireEntity, ...], chance: bytes) -> WriteCommand:
    encoded = encode_operations(operations)
    write = PreparedWrite(command.place, COLLECTOR, None, b"", operations, encoded, request_hash(encoded))
    return WriteCommand(write, COLLECTOR, command.leader, chance)


def _chance(tip: WorkingPlace) -> bytes:
    """The part of the transaction id that tells histories apart: it follows from the block before."""
    return sha256(b"expire" + tip.tip_hash).digest()[:CHANCE_BYTES]


def find_expired(reading: Reading, start: Key, leader: bytes) -> tuple[list[ExpireEntities], Key]:
    """Entities that have expired, by place, and where in the index of expiry the next look begins; () is its start.

    At most `KEYS_AT_ONCE` entries are read at a time, from `start` on, and then from the first one on. Entries of
    places that accept no writes are passed over, up to `LOOKS` times.
    """
    is_whole = not start
    found: list[ExpireEntities] = []
    for _ in range(LOOKS):
        stop = (reading.now.expiry_ms // 1_000 + 1,)
        keys = reading.keys(Range(LEDGER_ENTITY, "expiry", (), KEYS_AT_ONCE, start=start or (1,), stop=stop))
        groups, behind = _grouped(keys)
        start = () if behind is None else _position(reading, behind)
        open_places = _open_places(reading, list(groups))
        found = [ExpireEntities(place, tuple(some), leader) for place, some in groups.items() if place in open_places]
        if found or (not start and is_whole):
            break
        is_whole = is_whole or not start
    return found, start


def _grouped(keys: Sequence[Key]) -> tuple[dict[LedgerPlace, list[bytes]], Key | None]:
    """The keys that one transaction may remove in each of at most `EXPIRED_PLACES` places, and the key to go on with;
    None if these were all.
    """
    groups: dict[LedgerPlace, list[bytes]] = {}
    sizes: Counter[LedgerPlace] = Counter()
    for org, vault, key in keys:
        place = LedgerPlace(org, vault)
        if place not in groups and len(groups) == EXPIRED_PLACES:
            return groups, (org, vault, key)
        some = groups.setdefault(place, [])
        sizes[place] += len(key)
        if not some or (len(some) < EXPIRED_AT_ONCE and sizes[place] <= EXPIRED_BYTES):
            some.append(key)
    return groups, keys[-1] if len(keys) == KEYS_AT_ONCE else None


def _position(reading: Reading, key: Key) -> Key:
    """The position of an entity in the index of expiry."""
    row = reading.get(LEDGER_ENTITY, key)
    assert row is not None, "the key was read from the same snapshot"
    return (row.expires_at, *key)


def _open_places(reading: Reading, places: Sequence[LedgerPlace]) -> set[LedgerPlace]:
    """Those of the places that accept writes, and whose last block is where it must be."""
    rows = reading.find(LEDGER_PLACE, places)
    orgs = reading.find(LEDGER_ORG, sorted({(place.org,) for place in places}))
    blocks = reading.find(LEDGER_BLOCK, [(*place, row.height) for place, row in rows.items()])
    return {
        LedgerPlace(*place)
        for place, row in rows.items()
        if refuse_write(orgs.get((row.org,)), row) is None and is_head(row, blocks.get((*place, row.height)))
    }
