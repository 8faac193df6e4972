"""Queries of the ledger over a snapshot: clients, entities, blocks, organizations.

A snapshot includes every write that was acknowledged before it was taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.store.protocol import Range
from semel.surfaces.ledger.commands import CommittedTransaction, Org, Vault, invalid
from semel.surfaces.ledger.limits import MAX_ANSWER_BYTES, MAX_CHAIN_HEADERS, MAX_RANGE_BLOCKS, MAX_RANGE_BYTES
from semel.surfaces.ledger.model import ZERO, BlockHeader, Entity, LedgerPlace, LedgerTransaction, TxProof
from semel.surfaces.ledger.rules.chain import (
    block_hash,
    committed_of,
    genesis_of,
    header_of,
    is_head,
    org_of,
    transaction_of,
    vault_of,
)
from semel.surfaces.ledger.rules.commits import height_of_id, is_compacted, unless_evicted
from semel.surfaces.ledger.rules.organizations import broken_chain, no_org, no_vault, refuse_read
from semel.surfaces.ledger.rules.state import is_expired
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_ENTITY,
    LEDGER_ORG,
    LEDGER_PAST,
    LEDGER_PLACE,
    LEDGER_STREAM,
    LEDGER_VALUE,
    BlockRow,
    EntityRow,
    PastRow,
    PlaceRow,
)

_I64 = 2**63

_HEADERS_AT_ONCE = 500
"""The number of headers that are read at once."""


class ClientState(NamedTuple):
    """The last sequence of a client; all but the first member are None for an unknown client."""

    last: int
    tx_id: bytes | None = None
    height: int | None = None
    last_seen: int | None = None


class EntityRead(NamedTuple):
    """A visible entity, or None, and the height of the read."""

    entity: Entity | None
    height: int


class ChainTip(NamedTuple):
    """The last block of a place; height 0 if it has none."""

    height: int
    block_hash: bytes
    state_root: bytes
    header: BlockHeader


class LedgerBlock(NamedTuple):
    """A block; without its transaction if the body is compacted."""

    header: BlockHeader
    transaction: LedgerTransaction | None


def tip_row(reading: Reading, place: LedgerPlace) -> PlaceRow:
    """The row of a place; refused if it cannot be read."""
    if not (0 <= place.org < _I64):
        raise Refused.of(no_org())
    if not (0 <= place.vault < _I64):
        raise Refused.of(no_vault())
    org, row = reading.get(LEDGER_ORG, (place.org,)), reading.get(LEDGER_PLACE, place)
    refusal = refuse_read(org, row)
    if refusal is not None or row is None:
        raise Refused.of(refusal or no_vault())
    return row


def client_state(reading: Reading, place: LedgerPlace, client: bytes) -> ClientState:
    """The last committed sequence of a client; 0 for an unknown or evicted one."""
    tip_row(reading, place)
    org = reading.get(LEDGER_ORG, (place.org,))
    assert org is not None, "a place belongs to an organization"
    stream = unless_evicted(org, reading.get(LEDGER_STREAM, (*place, client)))
    if stream is None:
        return ClientState(0)
    block = reading.get(LEDGER_BLOCK, (*place, stream.last_height))
    return ClientState(stream.last, block.id or None if block else None, stream.last_height, stream.last_seen)


def height_to_read(row: PlaceRow, at_height: int | None) -> int | None:
    """The requested height, None for the current one; refused if it cannot be read."""
    if not at_height:
        return None
    if at_height > row.height:
        raise invalid(f"The tip of this chain is at height {row.height}.", "at_height")
    if row.retain and at_height < row.height - row.retain:
        oldest = row.height - row.retain
        raise Refused(
            "ledger:height_unavailable", f"States below height {oldest} are no longer kept.", {"oldest": str(oldest)}
        )
    return at_height


def row_at(reading: Reading, place: LedgerPlace, key: bytes, height: int | None) -> EntityRow | PastRow | None:
    """The row of a key at a height, expired or not; None is the current height."""
    if height is not None:
        ended: Sequence[PastRow] = reading.range(Range(LEDGER_PAST, "", (*place, key), 1, start=(height + 1,)))
        if ended:
            return ended[0] if ended[0].version <= height else None
    row = reading.get(LEDGER_ENTITY, (*place, key))
    return None if row is None or (height is not None and row.version > height) else row


def entity_of(reading: Reading, row: EntityRow | PastRow) -> Entity:
    """The entity of a row, with its value, which may be stored in a separate row."""
    return entities_of(reading, [row])[0]


def entities_of(reading: Reading, rows: Sequence[EntityRow | PastRow]) -> list[Entity]:
    """The entities of many rows; all separately stored values are read at once."""
    apart = [(row.org, row.vault, row.version, row.key) for row in rows if row.size > INLINE_BYTES]
    values = reading.find(LEDGER_VALUE, apart) if apart else {}
    found = []
    for row in rows:
        value = values[row.org, row.vault, row.version, row.key].value if row.size > INLINE_BYTES else row.value
        found.append(Entity(row.key, value, row.expires_at, row.version))
    return found


def entity_at(reading: Reading, place: LedgerPlace, key: bytes, height: int | None) -> Entity | None:
    """The entity of a key at a height, expired or not; None is the current height."""
    row = row_at(reading, place, key, height)
    return None if row is None else entity_of(reading, row)


def present(entity: Entity | None, now_seconds: int) -> Entity | None:
    """The entity, unless it has expired."""
    return None if entity is None or is_expired(entity.expires_at, now_seconds) else entity


def seconds_at(reading: Reading, place: LedgerPlace, height: int | None) -> int:
    """The time for the check of expiry: that of the block that is read, or now."""
    if height is None:
        return reading.now.ms // 1_000
    return block_row(reading, place, height).at_seconds


def read_entity(reading: Reading, place: LedgerPlace, key: bytes, at_height: int | None) -> EntityRead:
    """An entity, if it is visible."""
    row = tip_row(reading, place)
    height = height_to_read(row, at_height)
    entity = present(entity_at(reading, place, key, height), seconds_at(reading, place, height))
    return EntityRead(entity, row.height if height is None else height)


def read_entities(reading: Reading, place: LedgerPlace, keys: Sequence[bytes]) -> tuple[list[Entity | None], int]:
    """Many entities in their current state, if they fit into one answer."""
    row = tip_row(reading, place)
    now = reading.now.ms // 1_000
    found = reading.find(LEDGER_ENTITY, [(*place, key) for key in dict.fromkeys(keys)])
    visible = {key[2]: one for key, one in found.items() if not is_expired(one.expires_at, now)}
    if sum(len(key) + (visible[key].size if key in visible else 0) for key in keys) > MAX_ANSWER_BYTES:
        raise invalid(f"These entities have more than {MAX_ANSWER_BYTES} bytes: ask for fewer keys.", "keys")
    entities = dict(zip(visible, entities_of(reading, list(visible.values())), strict=True))
    return [entities.get(key) for key in keys], row.height


def tip(reading: Reading, place: LedgerPlace) -> ChainTip:
    """The last block."""
    return tip_of(reading, place, tip_row(reading, place))


def tip_of(reading: Reading, place: LedgerPlace, row: PlaceRow) -> ChainTip:
    """The last block of a place whose row is loaded."""
    if row.height == 0:
        return ChainTip(0, ZERO, row.state_root, genesis_of(row))
    found = reading.get(LEDGER_BLOCK, (*place, row.height))
    if found is None or not is_head(row, found):
        raise Refused.of(broken_chain(row))
    return ChainTip(row.height, row.tip_hash, row.state_root, header_of(found))


def check_head(reading: Reading, place: LedgerPlace) -> None:
    """Refuse a place whose tip is not its last block."""
    row = tip_row(reading, place)
    tip_of(reading, place, row)
    if reading.get(LEDGER_BLOCK, (*place, row.height + 1)) is not None:
        raise Refused.of(broken_chain(row))


def block_row(reading: Reading, place: LedgerPlace, height: int) -> BlockRow:
    """The row of a block that must exist."""
    found = reading.get(LEDGER_BLOCK, (*place, height))
    if found is None:  # headers are kept for ever
        message = f"Block {height} of this chain is missing: rows were lost. Restore the data from a backup."
        raise Refused("ledger:data_loss", message, {"height": str(height)})
    return found


def operations_of(reading: Reading, blocks: Collection[BlockRow]) -> dict[int, bytes]:
    """The encoded operations of blocks by height; large operations are read at once from their own rows."""
    found = {block.height: block.operations for block in blocks if block.client}
    large = [block[:3] for block in blocks if block.client and block.size > INLINE_OPERATIONS]
    if large:
        found.update((key[2], row.operations) for key, row in reading.find(LEDGER_BODY, large).items())
    return found


def block(reading: Reading, place: LedgerPlace, height: int) -> LedgerBlock | None:
    """One block; None if there is none of that height."""
    row = tip_row(reading, place)
    if not 1 <= height <= row.height:
        return None
    found = block_row(reading, place, height)
    kept = {} if is_compacted(row, height) else operations_of(reading, [found])
    return _block_of(found, kept)


def _block_of(row: BlockRow, operations: Mapping[int, bytes]) -> LedgerBlock:
    encoded = operations.get(row.height)
    return LedgerBlock(header_of(row), None if encoded is None else transaction_of(row, encoded))


def blocks(reading: Reading, place: LedgerPlace, start: int, stop: int) -> tuple[list[LedgerBlock], int]:
    """The blocks from one height to another, inclusive, up to the size of one answer; and the tip."""
    row = tip_row(reading, place)
    if start < 1 or stop < start:
        raise invalid("A range of blocks goes from a height of at least 1 upwards.", "start_height")
    if stop - start + 1 > MAX_RANGE_BLOCKS:
        raise invalid(f"A range has at most {MAX_RANGE_BLOCKS} blocks.", "end_height")
    if start > row.height:
        return [], row.height
    wanted = Range(LEDGER_BLOCK, "", place, MAX_RANGE_BLOCKS, start=(start,), stop=(min(stop, row.height) + 1,))
    told: list[BlockRow] = []
    size = 0
    for header in reading.range(wanted):
        size += 0 if is_compacted(row, header.height) else header.size
        if told and size > MAX_RANGE_BYTES:
            break
        told.append(header)
    kept = operations_of(reading, [header for header in told if not is_compacted(row, header.height)])
    return [_block_of(header, kept) for header in told], row.height


def headers(reading: Reading, place: LedgerPlace, above: int, upto: int) -> list[BlockHeader]:
    """The headers above one height up to another: the chain from a trusted block to a proved one."""
    row = tip_row(reading, place)
    if not 0 <= above <= upto:
        raise invalid("The trusted height is above the height to be proved.", "trusted_height")
    if upto > row.height:
        raise invalid(f"The tip of this chain is at height {row.height}.", "at_height")
    if upto - above > MAX_CHAIN_HEADERS:
        raise invalid(f"A chain has at most {MAX_CHAIN_HEADERS} headers: go in steps.", "trusted_height")
    found: list[BlockHeader] = []
    for height in range(above + 1, upto + 1, _HEADERS_AT_ONCE):
        stop = min(height + _HEADERS_AT_ONCE, upto + 1)
        rows = reading.range(Range(LEDGER_BLOCK, "", place, stop - height, start=(height,), stop=(stop,)))
        found += map(header_of, rows)
    return found


def transaction(reading: Reading, place: LedgerPlace, tx_id: bytes) -> CommittedTransaction | None:
    """A transaction by its id; None if it is unknown or its body is compacted."""
    row = tip_row(reading, place)
    height = height_of_id(tx_id)
    if not 1 <= height <= row.height or is_compacted(row, height):
        return None
    found = block_row(reading, place, height)
    if found.id != tx_id:
        return None
    return committed_of(found, operations_of(reading, [found])[height])


def tx_proof(committed: CommittedTransaction) -> TxProof:
    """The proof that a transaction is in its block: the only transaction, so its leaf is the root."""
    return TxProof(committed.header.tx_root)


def hash_of(header: BlockHeader) -> bytes:
    """The hash of a block; 32 zero bytes for height 0."""
    return block_hash(header) if header.height else ZERO


def org(reading: Reading, slug: int) -> Org:
    """An organization, deleted or not."""
    row = reading.get(LEDGER_ORG, (slug,)) if 0 <= slug < _I64 else None
    if row is None:
        raise Refused.of(no_org())
    return org_of(row)


def vault(reading: Reading, place: LedgerPlace) -> Vault:
    """A vault, deleted or not."""
    org(reading, place.org)
    row = reading.get(LEDGER_PLACE, place) if 0 < place.vault < _I64 else None
    if row is None:
        raise Refused.of(no_vault())
    return vault_of(row)
