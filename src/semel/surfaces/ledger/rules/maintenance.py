"""Maintenance: the term rises, and rows that are forgotten or compacted are freed.

The cuts and the retention decide which rows count; rows beyond them do not count even before they are freed. The rows
of a place are freed from its first block upwards, a few heights at a time. If all bodies are kept, only keys are freed;
otherwise the body, the commit and the past state are freed, once the commit is forgotten too. The last commit of a
client is kept, and so are headers. A row of the tree that says that a bucket became empty is kept too, since stored
roots of an older height may still name the bucket.

The term also rises with the epoch of the store: the term of a block says to which history the block belongs.
"""

from __future__ import annotations

from collections.abc import Generator

from semel.engine.contract import DecisionResult, Stage, View
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key
from semel.surfaces.epoch import Rows
from semel.surfaces.ledger.commands import ForgetStreams, FreePlace, MaintenanceDone, OpenTerm
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.chain import decode_operations, state_keys
from semel.surfaces.ledger.rules.commits import (
    compact,
    is_compacted,
    release_last,
    released_block,
    stream_key,
    unless_evicted,
)
from semel.surfaces.ledger.rules.organizations import REGISTRY
from semel.surfaces.ledger.rules.state import StaleRow, stale_rows, tree_key, value_key
from semel.surfaces.ledger.rules.state_tree import without_pages
from semel.surfaces.ledger.tables import (
    ALONE,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PAST,
    LEDGER_PLACE,
    LEDGER_ROOTS,
    LEDGER_STREAM,
    LEDGER_TERM,
    LEDGER_TREE,
    LEDGER_VALUE,
    NO_TERM,
    ROOTS_EVERY,
    BlockRow,
    OrgRow,
    PlaceRow,
)

Needs = Generator[Stage, View, None]


def open_needs(command: OpenTerm) -> Needs:
    """The term."""
    yield Stage(keys=[(LEDGER_TERM, ALONE)])


def open_term(view: View, command: OpenTerm) -> DecisionResult:
    """Raise the term at a start, or when the database has changed."""
    row = view.get(LEDGER_TERM, ALONE) or NO_TERM
    is_same = row.term > 0 and command.era != b"" and command.era == row.era
    if not is_same:
        secret = row.secret or command.secret
        row = row._replace(term=row.term + 1, era=command.era, secret=secret)
        view.put(LEDGER_TERM, row)
    return DecisionResult(MaintenanceDone(row.term))


def free_needs(command: FreePlace) -> Needs:
    """The next blocks to be freed, and the clients and keys of their commits."""
    place = command.place
    view = yield Stage(keys=[(LEDGER_ORG, (place.org,)), (LEDGER_PLACE, place)])
    tip = view.get(LEDGER_PLACE, place)
    if tip is None:
        return
    heights = range(tip.freed + 1, min(command.upto, tip.height) + 1)
    yield Stage(keys=[(LEDGER_BLOCK, (*place, height)) for height in heights])
    further: list[tuple[AnyTable, Key]] = []
    for height in heights:
        block = view.get(LEDGER_BLOCK, (*place, height))
        if block is None:
            continue
        further.append((LEDGER_STREAM, stream_key(place, block.client)))
        if block.key:
            further.append((LEDGER_KEY, (*place, block.client, block.key)))
        if tip.retain:
            further += ((LEDGER_TREE, tree_key(place, one.name, one.height)) for one in _stale_pages(block))
            if block.size > INLINE_OPERATIONS:
                further.append((LEDGER_BODY, (*place, height)))
    yield Stage(keys=further)


def free_place(view: View, command: FreePlace) -> DecisionResult:
    """Free rows in order, up to the first that must be kept."""
    org, tip = view.get(LEDGER_ORG, (command.place.org,)), view.get(LEDGER_PLACE, command.place)
    if org is None or tip is None:
        return DecisionResult(MaintenanceDone())
    freed = tip.freed
    for height in range(tip.freed + 1, min(command.upto, tip.height) + 1):
        block = view.get(LEDGER_BLOCK, (*command.place, height))
        assert block is not None, "headers are kept for ever"
        if not may_be_freed(org, tip, block):
            break
        _free(view, org, tip, block)
        freed = height
    if freed > tip.freed:
        view.put(LEDGER_PLACE, tip._replace(freed=freed))
    return DecisionResult(MaintenanceDone(freed - tip.freed))


def may_be_freed(org: OrgRow, tip: PlaceRow, block: BlockRow) -> bool:
    """Whether the commit of a block is forgotten and its body, unless bodies are kept, is compacted."""
    return block.at_seconds < org.cut and (tip.retain == 0 or is_compacted(tip, block.height))


def forget_needs(command: ForgetStreams) -> Needs:
    """The organization, its clients, and their places."""
    places = {(command.org, vault) for vault, _ in command.streams}
    view = yield Stage(
        keys=[
            (LEDGER_ORG, (command.org,)),
            *((LEDGER_PLACE, place) for place in sorted(places)),
            *((LEDGER_STREAM, (command.org, *one)) for one in command.streams),
        ]
    )
    blocks: list[tuple[AnyTable, Key]] = []
    for one in command.streams:
        tip, stream = view.get(LEDGER_PLACE, (command.org, one[0])), view.get(LEDGER_STREAM, (command.org, *one))
        block = None if tip is None or stream is None else released_block(tip, stream)
        if block is not None:
            blocks.append((LEDGER_BLOCK, block))
    yield Stage(keys=blocks)


def forget_streams(view: View, command: ForgetStreams) -> DecisionResult:
    """Free the rows of evicted clients."""
    org = view.get(LEDGER_ORG, (command.org,))
    number = 0
    for vault, client in command.streams:
        key = (command.org, vault, client)
        stream, tip = view.get(LEDGER_STREAM, key), view.get(LEDGER_PLACE, (command.org, vault))
        if org is None or tip is None or stream is None or unless_evicted(org, stream) is not None:
            continue
        if stream.last_height <= tip.freed:
            release_last(view, tip, stream)
        view.delete(LEDGER_STREAM, key)
        number += 1
    return DecisionResult(MaintenanceDone(number))


def _stale_pages(block: BlockRow) -> list[StaleRow]:
    return [one for one in stale_rows(block.stale) if one.is_page]


def _free(view: View, org: OrgRow, tip: PlaceRow, block: BlockRow) -> None:
    place = LedgerPlace(tip.org, tip.vault)
    stream = unless_evicted(org, view.get(LEDGER_STREAM, stream_key(place, block.client)))
    is_last = stream is not None and stream.last_height == block.height
    if block.key and not is_last:
        key = view.get(LEDGER_KEY, (*place, block.client, block.key))
        if key is not None and (key.life, key.sequence) == (block.life, block.sequence):
            view.delete(LEDGER_KEY, (*place, block.client, block.key))
    if not tip.retain:
        return
    _free_state(view, place, block)
    if is_last:
        view.put(LEDGER_BLOCK, block._replace(stale=b""))
    else:
        compact(view, block)


def _free_state(view: View, place: LedgerPlace, block: BlockRow) -> None:
    """Free the state that a block replaced: pages of the tree, large values, past rows, and older roots."""
    pages: dict[Key, set[bytes]] = {}
    for stale in stale_rows(block.stale):
        if stale.is_page:
            pages.setdefault(tree_key(place, stale.name, stale.height), set()).add(stale.name)
        else:
            view.forget(LEDGER_VALUE, value_key(place, stale.name, stale.height))
    for key, paths in pages.items():
        row = view.get(LEDGER_TREE, key)
        assert row is not None, "a page is kept until it is freed"
        left = without_pages(row.pages, paths)
        if left:
            view.put(LEDGER_TREE, row._replace(pages=left))
        else:
            view.delete(LEDGER_TREE, key)
    if block.height % ROOTS_EVERY == 0 and block.height > ROOTS_EVERY:
        view.forget(LEDGER_ROOTS, (*place, block.height - ROOTS_EVERY))  # this height has its own
    operations = block.operations
    if block.size > INLINE_OPERATIONS:
        body = view.get(LEDGER_BODY, (*place, block.height))
        assert body is not None, "a body is kept until it is freed"
        operations = body.operations
    for changed in state_keys(decode_operations(operations)):
        view.forget(LEDGER_PAST, (*place, changed, block.height))


TERM_LOCK = Lock(REGISTRY)
"""Held exclusively: no block is made while the term changes."""


def raised_term(rows: Rows, epoch: int) -> int:
    """The term of blocks in a new epoch: above every term that another history of the ledger can have had."""
    row = rows.get(LEDGER_TERM, ALONE)
    return 0 if row is None else max(row.term + 1, epoch)


def raise_term(view: View, epoch: int) -> None:
    """Raise the term; a ledger that no server has opened has none yet."""
    row = view.get(LEDGER_TERM, ALONE)
    if row is not None:
        view.put(LEDGER_TERM, row._replace(term=raised_term(view, epoch)))
