"""Commits: the row of a block with its commit, and the eviction of clients and commits.

Eviction is a function of the log alone. At every entry whose index is a multiple of the organization's interval, two
cuts advance to the time of the entry minus the time to live: commits before the first cut are forgotten; clients that
were last seen before the second cut are forgotten with all their commits. A cut never moves back, so what was forgotten
does not return when the time to live grows. With the fence on, the cut of clients does not move, and the last sequence
of a client is never forgotten. Eviction deletes nothing at once: rows before a cut do not count, and are freed later.
"""

from __future__ import annotations

from semel.engine.contract import View
from semel.store.protocol import Range
from semel.store.table import Key
from semel.surfaces.ledger.commands import CommittedTransaction, PreparedWrite, WriteCommand
from semel.surfaces.ledger.model import ZERO, BlockHeader, LedgerPlace, LedgerTime, LedgerTransaction
from semel.surfaces.ledger.rules.chain import transaction_hash
from semel.surfaces.ledger.rules.group_rows import WorkingOrg, WorkingPlace, next_cuts
from semel.surfaces.ledger.rules.idempotency import RememberedCommit, WriteCase
from semel.surfaces.ledger.tables import (
    ALONE,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_KEY,
    LEDGER_STREAM,
    LEDGER_TERM,
    NO_TERM,
    BlockRow,
    BodyRow,
    KeyRow,
    LedgerStreamRow,
    OrgRow,
    PlaceRow,
)


def advance_cuts(org: OrgRow) -> OrgRow:
    """An organization after its last entry: every `interval` entries, the cuts advance."""
    cut, client_cut = next_cuts(org, org.entries, org.at_seconds, (org.cut, org.client_cut))
    return org._replace(cut=cut, client_cut=client_cut)


def stream_key(place: LedgerPlace, client: bytes) -> Key:
    """The key of a client's sequence."""
    return (*place, client)


def unless_evicted(org: OrgRow | WorkingOrg, stream: LedgerStreamRow | None) -> LedgerStreamRow | None:
    """The stream, unless it was evicted."""
    return None if stream is None or stream.last_seen < org.client_cut else stream


def is_in_window(org: OrgRow | WorkingOrg, stream: LedgerStreamRow, commit: BlockRow) -> bool:
    """Whether a commit is still remembered; a client's last commit is kept as long as its stream."""
    return commit.at_seconds >= org.cut or commit.sequence == stream.last


def is_compacted(place: PlaceRow | WorkingPlace, height: int) -> bool:
    """Whether the body of a block is no longer kept."""
    return place.retain > 0 and height <= place.height - place.retain


def current_stream(view: View, org: OrgRow | WorkingOrg, write: PreparedWrite) -> LedgerStreamRow | None:
    """The stream of a write's client; None for an unknown or evicted client."""
    return unless_evicted(org, view.get(LEDGER_STREAM, (*write.place, write.client)))


def commit_ranges(view: View, write: PreparedWrite, org: OrgRow) -> list[Range]:
    """The commits that a write is compared with; the rows that lead to them must be loaded."""
    stream = current_stream(view, org, write)
    if stream is None:
        return []
    found = []
    if write.sequence is not None and write.sequence <= stream.last:
        found.append(_commit_range(stream, write.sequence))
    key = _key_row(view, write)
    if key is not None and key.life == stream.life:
        found.append(_commit_range(stream, key.sequence))
    return found


def case_of(view: View, write: PreparedWrite, org: OrgRow | WorkingOrg, place: PlaceRow | WorkingPlace) -> WriteCase:
    """A write with all that is stored under its sequence and its key."""
    stream = current_stream(view, org, write)
    if stream is None:
        return WriteCase(write.sequence, write.key, write.request, 0, None, None)
    by_key = by_sequence = None
    key = _key_row(view, write)
    if key is not None and key.life == stream.life:
        commit = _commit(view, stream, key.sequence)
        if commit is not None and is_in_window(org, stream, commit):
            by_key = _past(commit)
    if write.sequence is not None and write.sequence <= stream.last:
        commit = _commit(view, stream, write.sequence)
        if commit is not None and is_in_window(org, stream, commit):
            by_sequence = _past(commit)
        elif commit is not None and not is_compacted(place, commit.height):
            by_sequence = _past(commit)._replace(key=b"")  # its key is forgotten: only the body is compared
    return WriteCase(write.sequence, write.key, write.request, stream.last, by_key, by_sequence)


def _key_row(view: View, write: PreparedWrite) -> KeyRow | None:
    return view.get(LEDGER_KEY, (*write.place, write.client, write.key)) if write.key else None


def _commit_range(stream: LedgerStreamRow, sequence: int) -> Range:
    return Range(LEDGER_BLOCK, "commit", (stream.org, stream.vault, stream.client, stream.life, sequence), 1)


def _commit(view: View, stream: LedgerStreamRow, sequence: int) -> BlockRow | None:
    found: list[BlockRow] = list(view.range(_commit_range(stream, sequence)))
    return found[0] if found else None


def _past(commit: BlockRow) -> RememberedCommit:
    return RememberedCommit(commit.sequence, commit.key, commit.request, commit.height)


ID_HEIGHT_BYTES = 6


def transaction_id(height: int, chance: bytes) -> bytes:
    """The id of a transaction: it begins with the height of its block."""
    return height.to_bytes(ID_HEIGHT_BYTES, "big") + chance


def height_of_id(tx_id: bytes) -> int:
    """The height of the block of a transaction id."""
    return int.from_bytes(tx_id[:ID_HEIGHT_BYTES], "big")


def build_block(
    view: View, command: WriteCommand, org: WorkingOrg, tip: WorkingPlace, sequence: int, root: bytes
) -> CommittedTransaction:
    """The block of a transaction; `org` is at its log entry, `tip` at the block before."""
    height = tip.height + 1
    at = LedgerTime(org.at_seconds, org.at_nanos)
    tx_id = transaction_id(height, command.chance)
    transaction = LedgerTransaction(tx_id, command.write.client, sequence, command.write.operations, at, command.actor)
    term = (view.get(LEDGER_TERM, ALONE) or NO_TERM).term
    tx_root = transaction_hash(transaction, command.write.encoded)  # the root over one leaf is that leaf
    previous = tip.tip_hash if tip.height else ZERO
    header = BlockHeader(height, command.write.place, previous, tx_root, root, at, term, org.entries, command.leader)
    return CommittedTransaction(transaction, header)


def store_commit(
    view: View,
    command: WriteCommand,
    life: int,
    tip: WorkingPlace,
    committed: CommittedTransaction,
    stale: bytes,
) -> None:
    """Store the block with its commit, the sequence of its key, and the client's new last sequence.

    `life` is the height of the client's first commit.
    """
    transaction, header = committed
    write = command.write
    place, client, sequence, height = write.place, write.client, transaction.sequence, header.height
    known = view.get(LEDGER_STREAM, (*place, client))
    if known is not None and known.last_height <= tip.before.freed:
        release_last(view, tip.before, known)
    is_inline = len(write.encoded) <= INLINE_OPERATIONS
    view.insert(
        LEDGER_BLOCK,
        BlockRow(
            *place,
            height,
            header.previous_hash,
            header.tx_root,
            header.state_root,
            *header.at,
            header.term,
            header.committed_index,
            header.leader,
            len(write.encoded),
            client,
            life,
            sequence,
            write.key,
            write.request,
            transaction.id,
            transaction.actor,
            int(command.with_proof),
            stale,
            write.encoded if is_inline else b"",
        ),
    )
    if not is_inline:
        view.insert(LEDGER_BODY, BodyRow(*place, height, write.encoded))
    if write.key:
        view.put(LEDGER_KEY, KeyRow(*place, client, write.key, life, sequence))
    view.put(LEDGER_STREAM, LedgerStreamRow(*place, client, life, sequence, header.at.seconds, height, write.key))


def released_block(tip: PlaceRow, stream: LedgerStreamRow) -> Key | None:
    """The block of a client's last commit, if it is kept only as long as that commit; None if it is kept longer."""
    return (tip.org, tip.vault, stream.last_height) if tip.retain and stream.last_height <= tip.freed else None


def release_last(view: View, tip: PlaceRow, stream: LedgerStreamRow) -> None:
    """Free rows that were kept only because they belonged to a client's last commit."""
    if stream.last_key:
        view.forget(LEDGER_KEY, (tip.org, tip.vault, stream.client, stream.last_key))
    where = released_block(tip, stream)
    block = None if where is None else view.get(LEDGER_BLOCK, where)
    if block is not None:
        compact(view, block)


def compact(view: View, block: BlockRow) -> None:
    """Free the body and the commit of a block; its header is kept."""
    if block.size > INLINE_OPERATIONS:
        view.forget(LEDGER_BODY, (block.org, block.vault, block.height))
    view.put(LEDGER_BLOCK, BlockRow(*block[:12], b"", 0, 0, b"", b"", b"", b"", 0, b"", b""))
