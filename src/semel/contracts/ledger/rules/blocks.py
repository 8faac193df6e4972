"""The rows of a new block."""

from __future__ import annotations

from semel.contracts.ledger.commands import Committed, WriteCommand
from semel.contracts.ledger.model import ZERO, Header, Instant, Place, Transaction
from semel.contracts.ledger.rules.chain import merkle_root
from semel.contracts.ledger.rules.encoding import transaction_hash
from semel.contracts.ledger.rules.memory import living, stream_key
from semel.contracts.ledger.tables import (
    ALONE,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_COMMIT,
    LEDGER_KEY,
    LEDGER_STREAM,
    LEDGER_TERM,
    NO_TERM,
    BlockRow,
    BodyRow,
    CommitRow,
    KeyRow,
    OrgRow,
    PlaceRow,
    StreamRow,
)
from semel.engine.contract import View

ID_HEIGHT_BYTES = 6


def transaction_id(height: int, chance: bytes) -> bytes:
    """An id leads to its block: it begins with the height."""
    return height.to_bytes(ID_HEIGHT_BYTES, "big") + chance


def height_of_id(tx_id: bytes) -> int:
    """The height that an id leads to."""
    return int.from_bytes(tx_id[:ID_HEIGHT_BYTES], "big")


def build_block(view: View, command: WriteCommand, org: OrgRow, tip: PlaceRow, sequence: int, root: bytes) -> Committed:
    """The block of a transaction; `org` is at its log entry, `tip` at the block before."""
    height = tip.height + 1
    at = Instant(org.at_seconds, org.at_nanos)
    tx_id = transaction_id(height, command.chance)
    transaction = Transaction(tx_id, command.write.client, sequence, command.write.operations, at, command.actor)
    term = (view.get(LEDGER_TERM, ALONE) or NO_TERM).term
    tx_root = merkle_root([transaction_hash(transaction, command.write.encoded)])
    previous = tip.tip_hash if tip.height else ZERO
    place = Place(tip.org, tip.vault)
    header = Header(height, place, previous, tx_root, root, at, term, org.entries, command.leader)
    return Committed(transaction, header)


def store_block(view: View, command: WriteCommand, committed: Committed, life: int, stale: bytes) -> None:
    """Header and body."""
    transaction, header = committed
    where = (*header.place, header.height)
    view.insert(
        LEDGER_BLOCK,
        BlockRow(
            *where,
            header.previous_hash,
            header.tx_root,
            header.state_root,
            *header.at,
            header.term,
            header.committed_index,
            header.leader,
            len(command.write.encoded),
            stale,
        ),
    )
    view.insert(
        LEDGER_BODY,
        BodyRow(
            *where,
            transaction.id,
            transaction.client,
            life,
            transaction.sequence,
            command.write.key,
            transaction.actor,
            int(command.with_proof),
            command.write.encoded,
        ),
    )


def store_commit(view: View, command: WriteCommand, org: OrgRow, tip: PlaceRow, committed: Committed) -> int:
    """The commit under its sequence and key, and the client's new last one; the life that it belongs to."""
    transaction, header = committed
    place, client, sequence = header.place, command.write.client, transaction.sequence
    known = view.get(LEDGER_STREAM, stream_key(place, client))
    before = living(org, known)
    life = header.height if before is None else before.life
    if known is not None and known.last_height <= tip.freed:
        release_last(view, tip, known)
    seconds = header.at.seconds
    commit = CommitRow(*place, client, life, sequence, header.height, seconds, command.write.key, command.write.request)
    view.insert(LEDGER_COMMIT, commit)
    if command.write.key:
        view.put(LEDGER_KEY, KeyRow(*place, client, command.write.key, life, sequence))
    view.put(LEDGER_STREAM, StreamRow(*place, client, life, sequence, seconds, header.height, command.write.key))
    return life


def release_last(view: View, tip: PlaceRow, stream: StreamRow) -> None:
    """Free what was kept only because it was a client's last commit, once it no longer is."""
    place = (tip.org, tip.vault)
    if stream.last_key:
        view.forget(LEDGER_KEY, (*place, stream.client, stream.last_key))
    if tip.retain:
        view.forget(LEDGER_COMMIT, (*place, stream.client, stream.life, stream.last))
        view.forget(LEDGER_BODY, (*place, stream.last_height))
