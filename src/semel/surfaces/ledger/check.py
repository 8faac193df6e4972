"""The check of the ledger: chains of blocks, the log of each organization, and the memory of clients and keys.

Blocks are hashed again and linked, transactions are hashed again and compared with the root in their header, and the
commits of each client must follow each other. `tree_check` does the same for the state. The encodings are written out
here once more instead of using the rules that wrote the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from struct import Struct
from typing import Any

from semel.store.protocol import Range
from semel.store.table import Key
from semel.store.table_check import Check, StoreFault, StoreWalk, fault, in_groups, missing_of
from semel.surfaces.ledger.tables import (
    ALONE,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_ENTRY,
    LEDGER_KEY,
    LEDGER_MADE,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    LEDGER_TERM,
    BlockRow,
    OrgRow,
    PlaceRow,
)
from semel.surfaces.ledger.tree_check import past, state

_HEADER = Struct(">QQQ32s32s32sqIQQ")
_TIME = Struct(">qI")
_ZERO = bytes(32)
_BLOCKS_AT_ONCE = 200


def chains(walk: StoreWalk) -> Iterator[StoreFault]:
    """The blocks of each place follow each other from height 1 to its tip, each with the hash of the one before."""
    term_row = walk.get(LEDGER_TERM, ALONE)
    term = 0 if term_row is None else term_row.term
    for place in walk.rows(LEDGER_PLACE):
        last: BlockRow | None = None
        for block in _blocks(walk, (place.org, place.vault)):
            yield from _link(last, block, term)
            yield from _transaction(walk, place, block)
            last = block
        yield from _tip(place, last)


def _link(last: BlockRow | None, block: BlockRow, term: int) -> Iterator[StoreFault]:
    """A block follows the one before it."""
    height, tip = (1, _ZERO) if last is None else (last.height + 1, _hash_of(last))
    if block.height != height:
        yield fault(LEDGER_BLOCK, block[:3], f"Block {block.height} is where block {height} must be.")
    if block.previous_hash != tip:
        yield fault(LEDGER_BLOCK, block[:3], "It does not name the hash of the block before it.")
    if last is not None and not _rises(last, block):
        yield fault(LEDGER_BLOCK, block[:3], "Its time, term or index is not above that of the block before.")
    if block.term > term:
        yield fault(LEDGER_BLOCK, block[:3], f"Its term {block.term} is above the term {term} of the ledger.")


def _tip(place: PlaceRow, last: BlockRow | None) -> Iterator[StoreFault]:
    """The row of a place is about its last block."""
    where, height = (place.org, place.vault), 0 if last is None else last.height
    if height != place.height:
        yield fault(LEDGER_PLACE, where, f"The chain ends at height {height}, and its tip is {place.height}.")
    elif last is not None and _hash_of(last) != place.tip_hash:
        yield fault(LEDGER_PLACE, where, "Its tip is not the hash of its last block.")
    elif last is not None and last.state_root != place.state_root:
        yield fault(LEDGER_PLACE, where, "Its state root is not that of its last block.")
    if not 0 <= place.freed <= place.height:
        yield fault(LEDGER_PLACE, where, f"It was freed up to height {place.freed} of {place.height}.")


def _blocks(walk: StoreWalk, where: Key) -> Iterator[BlockRow]:
    start = 0
    while rows := walk.range(Range(LEDGER_BLOCK, "", where, _BLOCKS_AT_ONCE, start=(start,))):
        yield from rows
        start = rows[-1].height + 1


def _rises(before: BlockRow, block: BlockRow) -> bool:
    is_later = (before.at_seconds, before.at_nanos) <= (block.at_seconds, block.at_nanos)
    return is_later and before.term <= block.term and before.committed_index < block.committed_index


def _hash_of(block: BlockRow) -> bytes:
    org, vault, height, previous, tx_root, state_root, seconds, nanos, term, index = block[:10]
    return sha256(_HEADER.pack(height, org, vault, previous, tx_root, state_root, seconds, nanos, term, index)).digest()


def _transaction(walk: StoreWalk, place: PlaceRow, block: BlockRow) -> Iterator[StoreFault]:
    """The transaction of a block has the hash in its header, unless it was compacted."""
    if not block.id:
        if not place.retain or block.height > place.freed:
            yield fault(LEDGER_BLOCK, block[:3], "It has no transaction, and was not freed.")
        return
    operations = block.operations
    if block.size > INLINE_OPERATIONS:
        body = walk.get(LEDGER_BODY, block[:3])
        if body is None:
            yield fault(LEDGER_BODY, block[:3], "The operations of the block are not there.")
            return
        operations = body.operations
    if len(operations) != block.size:
        yield fault(LEDGER_BLOCK, block[:3], f"Its operations have {len(operations)} bytes instead of {block.size}.")
    hashed = sha256(block.id + _sized(block.client) + block.sequence.to_bytes(8, "big") + _sized(block.actor))
    hashed.update(operations)
    hashed.update(_TIME.pack(block.at_seconds, block.at_nanos))
    if hashed.digest() != block.tx_root:
        yield fault(LEDGER_BLOCK, block[:3], "Its transaction does not have the hash in its header.")
    if int.from_bytes(block.id[:6], "big") != block.height:
        yield fault(LEDGER_BLOCK, block[:3], "The id of its transaction does not begin with its height.")
    if sha256(operations).digest() != block.request:
        yield fault(LEDGER_BLOCK, block[:3], "The fingerprint of its request is not that of its operations.")


def _sized(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


def logs(walk: StoreWalk) -> Iterator[StoreFault]:
    """The log of each organization has one entry for each index; organizations and vaults are counted."""
    orgs = 0
    for org in walk.rows(LEDGER_ORG):
        orgs += 1
        yield from _log(walk, org)
    term = walk.get(LEDGER_TERM, ALONE)
    if orgs != (0 if term is None else term.orgs):
        yield fault(LEDGER_TERM, "", f"{0 if term is None else term.orgs} organizations are counted of {orgs}.")
    for group in in_groups(walk.keys(LEDGER_PLACE)):
        found = walk.find(LEDGER_ORG, [(key[0],) for key in group])
        for key in group:
            if (key[0],) not in found:
                yield fault(LEDGER_PLACE, key, "It belongs to no organization.")
    for page in walk.pages(LEDGER_MADE):
        places = walk.find(LEDGER_PLACE, [(row.org, row.vault) for row in page])
        for row in page:
            if (row.org, row.vault) not in places:
                yield fault(LEDGER_MADE, row[:2], "The place that this key has created is not there.")


def _log(walk: StoreWalk, org: OrgRow) -> Iterator[StoreFault]:
    count = total = squares = vaults = 0
    for place in walk.keys_below(LEDGER_PLACE, (org.org,)):
        vaults += place[1] != 0
        for block in _blocks(walk, place):
            index = block.committed_index
            count, total, squares = count + 1, total + index, squares + index * index
            if index > org.entries:
                yield fault(LEDGER_BLOCK, block[:3], f"Its index {index} is above the {org.entries} of its log.")
    for key in walk.keys_below(LEDGER_ENTRY, (org.org,)):
        index = key[1]
        count, total, squares = count + 1, total + index, squares + index * index
    last = org.entries
    if (count, total, squares) != (last, last * (last + 1) // 2, last * (last + 1) * (2 * last + 1) // 6):
        yield fault(LEDGER_ORG, (org.org,), f"Its log has {count} entries and counts {last}, or one index twice.")
    if vaults != org.vaults:
        yield fault(LEDGER_ORG, (org.org,), f"It counts {org.vaults} vaults and has {vaults}.")
    if max(org.cut, org.client_cut) > org.at_seconds:
        yield fault(LEDGER_ORG, (org.org,), "It has forgotten commits that are later than its last entry.")


def clients(walk: StoreWalk) -> Iterator[StoreFault]:
    """The memory of each client is that of its last commit, and its commits follow each other."""
    for group in in_groups(walk.rows(LEDGER_STREAM), _BLOCKS_AT_ONCE):
        blocks = walk.find(LEDGER_BLOCK, [(row.org, row.vault, row.last_height) for row in group])
        for row in group:
            block = blocks.get((row.org, row.vault, row.last_height))
            if block is None or (block.client, block.life, block.sequence) != (row.client, row.life, row.last):
                yield fault(LEDGER_STREAM, row[:3], f"Its last commit, {row.last}, is not in block {row.last_height}.")
            elif (block.key, block.at_seconds) != (row.last_key, row.last_seen):
                yield fault(LEDGER_STREAM, row[:3], "The key or the time of its last commit is not that of its block.")
    for place in walk.rows(LEDGER_PLACE):
        org = walk.get(LEDGER_ORG, (place.org,))
        if org is not None:
            yield from _commits(walk, org, place)


def _commits(walk: StoreWalk, org: OrgRow, place: PlaceRow) -> Iterator[StoreFault]:
    """The commits of each client in a place, in the order of their sequences."""
    before: BlockRow | None = None
    for block in _by_client(walk, (place.org, place.vault)):
        if before is not None and (before.client, before.life) == (block.client, block.life):
            if block.sequence != before.sequence + 1 or block.height <= before.height:
                said = f"Its sequence {block.sequence} does not follow the {before.sequence} of block {before.height}."
                yield fault(LEDGER_BLOCK, block[:3], said)
        else:
            if before is not None:
                yield from _last_commit(walk, org, before)
            is_first = (block.sequence, block.height) == (1, block.life)
            if not is_first and not place.retain:
                yield fault(LEDGER_BLOCK, block[:3], "The commits of its client before it are not there.")
        before = block
    if before is not None:
        yield from _last_commit(walk, org, before)


def _by_client(walk: StoreWalk, where: Key) -> Iterator[BlockRow]:
    """The blocks of a place with a commit, by client, life and sequence."""
    start: Key = (b"", 1)
    while rows := walk.range(Range(LEDGER_BLOCK, "commit", where, _BLOCKS_AT_ONCE, start=start)):
        yield from (row for row in rows if row.id)
        last = rows[-1]
        start = (last.client, last.life, last.sequence, last.height + 1)


def _last_commit(walk: StoreWalk, org: OrgRow, block: BlockRow) -> Iterator[StoreFault]:
    """The newest commit of a life must be what the client's row remembers, unless the client was evicted."""
    row = walk.get(LEDGER_STREAM, (block.org, block.vault, block.client))
    if row is not None and row.life == block.life:
        if row.last != block.sequence:
            yield fault(
                LEDGER_STREAM, row[:3], f"Its last sequence is {row.last}, and its commits end at {block.sequence}."
            )
    elif block.at_seconds >= org.client_cut:
        where = (block.org, block.vault, block.client)
        yield fault(LEDGER_STREAM, where, "The client has commits, was not evicted, and is not remembered.")


def keys(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each key names a commit under this key, and each commit that is remembered has the row of its key."""
    count = 0
    for row in walk.rows(LEDGER_KEY):
        count += 1
        prefix = (row.org, row.vault, row.client, row.life, row.sequence)
        found = walk.range(Range(LEDGER_BLOCK, "commit", prefix, 1))
        if not found or found[0].key != row.key:
            yield fault(
                LEDGER_KEY, row[:4], f"The commit {row.sequence} that it names is not there, or of another key."
            )

    def wanted() -> Iterator[tuple[Key, Any]]:
        for place in walk.rows(LEDGER_PLACE):
            for block in _blocks(walk, (place.org, place.vault)):
                if block.key and block.height > place.freed:
                    yield (block.org, block.vault, block.client, block.key), block

    def held() -> Iterator[Key]:
        return walk.keys(LEDGER_KEY)

    for _, block in missing_of(wanted, held, count):
        yield fault(LEDGER_BLOCK, block[:3], "The idempotency key of its transaction is not remembered.")


def bodies(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each separate body belongs to a block that has large operations."""
    for group in in_groups(walk.keys(LEDGER_BODY), _BLOCKS_AT_ONCE):
        blocks = walk.find(LEDGER_BLOCK, group)
        for key in group:
            block = blocks.get(key)
            if block is None or block.size <= INLINE_OPERATIONS or not block.id:
                yield fault(LEDGER_BODY, key, "The operations belong to no block.")


CHECKS: tuple[Check, ...] = (chains, logs, clients, keys, bodies, state, past)
