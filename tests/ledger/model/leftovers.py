"""What a sweep must have left and what it must not: rows that something may still need, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable
from semel.surfaces.ledger.rules.state_tree import EMPTY_BUCKET, paths_of
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    INLINE_OPERATIONS,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_KEY,
    LEDGER_PAST,
    LEDGER_ROOTS,
    LEDGER_STREAM,
    LEDGER_TREE,
    LEDGER_VALUE,
    ROOTS_EVERY,
)
from tests.ledger.model.model import NO_KEY, Commit, Model, Organization, Scope

ROWS = 1_000_000


def rows_of(store: MemoryStore, table: AnyTable) -> list[Any]:
    """All of them, by key."""
    with store.read() as snapshot:
        return list(snapshot.page(table, 0, None, ROWS, 2**40))


def leftovers(store: MemoryStore, model: Model) -> Iterator[str]:
    """After a sweep: rows that nothing will ever need again, and rows that are gone although something may."""
    streams: set[Any] = set()
    bodies: set[Any] = set()
    keys: set[Any] = set()
    for org in model.orgs.values():
        streams |= {(org.slug, *name) for name in org.streams}
        for scope in org.scopes.values():
            for commit in scope.blocks:
                is_needed = _is_last(org, scope, commit) or not _is_freed(scope, commit)
                if is_needed or not scope.retain:
                    bodies.add((*scope.place, commit.header.height))
                if is_needed and commit.key not in NO_KEY:
                    keys.add((*scope.place, commit.transaction.client, commit.key))
            yield from _old_trees(store, scope)
    there = {tuple(row[:3]) for row in rows_of(store, LEDGER_STREAM)}
    yield from _compared("streams", there, streams)
    blocks = rows_of(store, LEDGER_BLOCK)
    yield from _compared("bodies", {tuple(row[:3]) for row in blocks if row.client}, bodies)
    yield from _compared("operations", {tuple(row[:3]) for row in blocks if row.operations}, _small(blocks, bodies))
    yield from _compared(
        "large bodies", {tuple(row[:3]) for row in rows_of(store, LEDGER_BODY)}, _large(blocks, bodies)
    )
    values = {value for org in model.orgs.values() for scope in org.scopes.values() for value in _values(scope)}
    yield from _compared("values", {tuple(row[:4]) for row in rows_of(store, LEDGER_VALUE)}, values)
    yield from _compared("keys", {tuple(row[:4]) for row in rows_of(store, LEDGER_KEY)}, keys)


def _small(blocks: list[Any], bodies: set[Any]) -> set[Any]:
    return {tuple(row[:3]) for row in blocks if row.size <= INLINE_OPERATIONS} & bodies


def _large(blocks: list[Any], bodies: set[Any]) -> set[Any]:
    return {tuple(row[:3]) for row in blocks if row.size > INLINE_OPERATIONS} & bodies


def _compared(name: str, there: set[Any], wanted: set[Any]) -> Iterator[str]:
    if there != wanted:
        yield f"{name}: {sorted(there - wanted)} too many, {sorted(wanted - there)} too few"


def _is_last(org: Organization, scope: Scope, commit: Commit) -> bool:
    stream = org.streams.get((scope.place.vault, commit.transaction.client))
    return stream is not None and stream.commits[-1] is commit


def _is_freed(scope: Scope, commit: Commit) -> bool:
    """Forgotten, and compacted where bodies are."""
    return commit.is_old and (not scope.retain or not scope.has_body(commit.header.height))


def _values(scope: Scope) -> Iterator[tuple[int, int, int, bytes]]:
    """The large values that some height which can be read still has, by the height that set them."""
    freed = sum(_is_freed(scope, commit) for commit in scope.blocks) if scope.retain else 0
    for state in scope.states[freed:]:
        for entity in state.values():
            if len(entity.value) > INLINE_BYTES:
                yield *scope.place, entity.version, entity.key


def _old_trees(store: MemoryStore, scope: Scope) -> Iterator[str]:
    """Where states go, at most one page of each path is older than the first that is kept, and nothing of the past."""
    if not scope.retain:
        return
    freed = sum(_is_freed(scope, commit) for commit in scope.blocks)
    old = [row for row in rows_of(store, LEDGER_TREE) if (row.org, row.vault) == scope.place and row.height <= freed]
    twice = {path: count for path, count in Counter(_paths(old)).items() if count > 1}
    if twice:
        yield f"pages: more than one is left in {scope.place} up to {freed}: {twice}"
    empty = [row for row in old if not row.pages and row.root != EMPTY_BUCKET]
    if empty:
        yield f"rows of the tree without a page: {empty}"
    roots = {row.height for row in rows_of(store, LEDGER_ROOTS) if (row.org, row.vault) == scope.place}
    first = max(1, freed - freed % ROOTS_EVERY)
    yield from _compared("roots", roots, {n for n in range(first, len(scope.states)) if n % ROOTS_EVERY == 0})
    past = [row for row in rows_of(store, LEDGER_PAST) if (row.org, row.vault) == scope.place and row.until <= freed]
    if past:
        yield f"{scope.place} still has the past up to {freed}: {past}"


def _paths(rows: list[Any]) -> Iterator[bytes]:
    for row in rows:
        yield from paths_of(row.pages)
