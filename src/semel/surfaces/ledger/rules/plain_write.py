"""The short way of a plain transaction: the result of `write` without its intermediate values.

A transaction is plain if it sets one small entity without a condition, is the next one of its client or has a fresh
key, and is in a place that keeps all bodies, of an organization without limits. Every other transaction is left to
`write`. Both give the same rows and answers; `tests/ledger/rules/test_plain_write.py` compares them.
"""

from __future__ import annotations

from hashlib import sha256

from semel.kernel.clock import Now
from semel.surfaces.ledger.commands import WriteCommand, WriteCommitted
from semel.surfaces.ledger.limits import MAX_SEQUENCE
from semel.surfaces.ledger.model import Entity, SetEntity
from semel.surfaces.ledger.rules.chain import block_hash
from semel.surfaces.ledger.rules.commits import build_block, current_stream, store_commit
from semel.surfaces.ledger.rules.group_rows import WorkingOrg, WorkingPlace, WorkingRows
from semel.surfaces.ledger.rules.idempotency import KEY_BYTES
from semel.surfaces.ledger.rules.state_tree import bucket_of, change, edit_bucket, pack_pages
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    INLINE_OPERATIONS,
    LEDGER_ENTITY,
    LEDGER_KEY,
    LEDGER_PAST,
    LEDGER_ROOTS,
    LEDGER_TREE,
    ROOTS_EVERY,
    EntityRow,
    PastRow,
    RootsRow,
    TreeRow,
)


def plain_operation(command: WriteCommand) -> SetEntity | None:
    """The operation of a transaction that may be plain; None if it is not, by the request alone."""
    write = command.write
    if len(write.operations) != 1 or len(write.encoded) > INLINE_OPERATIONS:
        return None
    operation = write.operations[0]
    if operation.__class__ is not SetEntity or operation.condition is not None:
        return None
    if len(operation.value) > INLINE_BYTES or len(write.key) not in (0, KEY_BYTES):
        return None
    return operation


def write_plain(
    rows: WorkingRows, command: WriteCommand, org: WorkingOrg, tip: WorkingPlace, now: Now
) -> WriteCommitted | None:
    """Commit a plain transaction; None if it is not plain. The place accepts writes, and its last block is checked."""
    operation = plain_operation(command)
    if operation is None or tip.before.retain or org.before.quota_bytes or org.before.quota_writes:
        return None
    view, write = rows.view, command.write
    place, client, name = write.place, write.client, write.key
    stream = current_stream(view, org, write)
    last = 0 if stream is None else stream.last
    if write.sequence != last + 1 and (write.sequence is not None or not name or last == MAX_SEQUENCE):
        return None
    if name and view.get(LEDGER_KEY, (*place, client, name)) is not None:
        return None
    if tip.before.freed:
        return None  # rows of older commits may have to be released
    height = tip.height + 1
    key, value, expires_at, _ = operation
    entity_key = (*place, key)
    old = view.get(LEDGER_ENTITY, entity_key)
    changed = change(key, Entity(key, value, expires_at, height))
    bucket = bucket_of(key)
    edit = edit_bucket(
        bucket, tip.bucket_height(bucket), (changed,), height, lambda path, written: rows.page(place, path, written)
    )
    # From here on nothing is missing: rows are written.
    view.insert(LEDGER_TREE, TreeRow(*place, height, bucket, edit.root, pack_pages(edit.pages)))
    tip.set_bucket(bucket, edit.root, height)
    rows.tree.add(place, height, edit)
    if old is not None:
        view.insert(
            LEDGER_PAST, PastRow(*place, key, height, old.value, old.size, old.expires_at, old.version, old.subject)
        )
    view.put(LEDGER_ENTITY, EntityRow(*place, key, value, len(value), expires_at, height, b""))
    if height % ROOTS_EVERY == 0:
        tops = tip.tops()
        view.insert(LEDGER_ROOTS, RootsRow(*place, height, tops.roots, tops.heights))
    root = sha256(tip.roots).digest()
    org.enter(org.next_time(now))
    committed = build_block(view, command, org, tip, last + 1, root)
    store_commit(view, command, height if stream is None else stream.life, tip, committed, b"")
    tip.height, tip.tip_hash, tip.state_root = height, block_hash(committed.header), root
    return WriteCommitted(committed)
