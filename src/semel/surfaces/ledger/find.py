"""Transactions of the ledger by their identities: a transaction id, an idempotency key, a client's sequence, a height.

A block is stored under its place, and a key under its place and client. Without a place, the places that the caller may
read are tried in the order of their slugs, and for a key all of their clients. A place is written `ORG`, `ORG/VAULT` or
`ORG/VAULT/CLIENT`; vault 0 is the organization's own place. A sequence is written `CLIENT/SEQUENCE`, or alone if the
place names the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.principals import Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, probe_pages
from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.table import Key
from semel.surfaces.ledger.access import SURFACE, reaches
from semel.surfaces.ledger.limits import MAX_SEQUENCE
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.reading import tip_row
from semel.surfaces.ledger.rules.commits import height_of_id, is_compacted, is_in_window, unless_evicted
from semel.surfaces.ledger.tables import (
    LEDGER_BLOCK,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    BlockRow,
    KeyRow,
    LedgerStreamRow,
    PlaceRow,
)
from semel.surfaces.ledger.wire.answers import base64
from semel.surfaces.ledger.wire.members import digits
from semel.surfaces.ledger.wire.urls import tx_id

HINT = "Not every place of the ledger was tried: name the organization, the vault and the client with `in`."
FREED = ("client", b"")
"""The mark of a block whose transaction was freed."""
FREED_HINT = "The transactions of some blocks of this height are not kept any more, so they were not compared."
_SLUGS_LIMIT = 2**63


class NamedPlace(NamedTuple):
    """The part of the ledger that a query names; None for any."""

    org: int | None = None
    vault: int | None = None
    client: bytes | None = None


class LedgerLookup:
    """One look-up: what the caller may read, and what is already known of places."""

    def __init__(self, reading: Reading, query: WriteQuery, budget: ProbeBudget) -> None:
        self.reading = reading
        self.budget = budget
        self._caller = query.caller
        self._tips: dict[LedgerPlace, PlaceRow | None] = {}

    def rows(self, wanted: Sequence[Range], probe: ScopeProbe) -> Iterator[Any]:
        """What a probe finds below these places or clients, of the places that the caller may read."""
        for scopes in wanted:
            for (rows,) in probe_pages(self.reading, scopes, [probe], self.budget, HINT):
                yield from (row for _, row in sorted(rows.items()) if self.tip_of(row) is not None)

    def tip_of(self, row: BlockRow | KeyRow | LedgerStreamRow) -> PlaceRow | None:
        """The row of the place that a row belongs to; None if the caller may not read the place."""
        place = LedgerPlace(row.org, row.vault)
        if place not in self._tips:
            self._tips[place] = self._tip(place) if reaches(self._caller, Role.READ, place) else None
        return self._tips[place]

    def _tip(self, place: LedgerPlace) -> PlaceRow | None:
        try:
            return tip_row(self.reading, place)
        except Refused:
            return None

    def prefixes(self, named: NamedPlace) -> Sequence[tuple[int, ...]]:
        """The organizations and places that the query means, without those that the caller surely may not read; an
        empty prefix means all.
        """
        if not self._caller.has(Role.READ):
            return ()
        meant = tuple(part for part in (named.org, named.vault) if part is not None)
        reach = self._caller.reach(SURFACE)
        if any(is_prefix for _, is_prefix in reach):
            return [meant]  # a prefix of the text is no range of numbers: places are told apart when they have a match
        found = {slugs for slugs in (_slugs(name) for name, _ in reach) if slugs is not None}
        both = [max(slugs, meant, key=len) for slugs in sorted(found) if slugs[: len(meant)] == meant[: len(slugs)]]
        return [one for one in dict.fromkeys(both) if one[:1] not in both or len(one) == 1]


def _slugs(scope: bytes) -> tuple[int, ...] | None:
    """The organization, or the place, that a scope names: `ORG`, `ORG/` or `ORG/VAULT`; None for any other name."""
    org, slash, vault = scope.partition(b"/")
    parts = [digits(text.decode("latin-1")) for text in ([org, vault or b"0"] if slash else [org])]
    slugs = tuple(part for part in parts if part is not None and part < _SLUGS_LIMIT)
    return slugs if len(slugs) == len(parts) else None


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The transactions of this id and of this key, the commit of this sequence, the block of this height."""
    named = _named_place(query)
    raw = _sixteen_bytes(query)
    sequence = _sequence(query, named) if named is not None else None
    height = query.number if named is not None and named.org is not None and named.client is None else None
    if named is None or (raw is None and sequence is None and height is None):
        return
    lookup = LedgerLookup(reading, query, budget)
    prefixes = lookup.prefixes(named)
    places = [Range(LEDGER_PLACE, "", prefix, 1) for prefix in prefixes]
    if raw is not None:
        yield from _by_id(lookup, places, raw)
        clients = places if named.client else [Range(LEDGER_STREAM, "", prefix, 1) for prefix in prefixes]
        yield from _by_key(lookup, clients, (named.client, raw) if named.client else (raw,))
    if sequence is not None:
        yield from _by_sequence(lookup, places, *sequence)
    if height is not None:
        yield from _by_height(lookup, places, height)


def _named_place(query: WriteQuery) -> NamedPlace | None:
    """The place of a query; None if it names no place of a ledger."""
    if query.place is None:
        return NamedPlace()
    org, vault, client = (*query.place.split(b"/", 2), b"", b"")[:3]
    slugs = [None if not text else digits(text.decode("latin-1")) for text in (org, vault)]
    if slugs[0] is None or (vault and slugs[1] is None) or any((slug or 0) >= _SLUGS_LIMIT for slug in slugs):
        return None
    return NamedPlace(slugs[0], slugs[1], client or None)


def _sixteen_bytes(query: WriteQuery) -> bytes | None:
    """The identity as a transaction id or an idempotency key, which are written in the same ways."""
    try:
        return None if query.text is None else tx_id(query.text)
    except Refused:
        return None


def _sequence(query: WriteQuery, named: NamedPlace) -> tuple[bytes, int] | None:
    """The client and the sequence of a query."""
    client, _, number = (named.client, b"", query.id) if named.client else query.id.rpartition(b"/")
    found = digits(number.decode("latin-1")) if client else None
    return (client, found) if client and found is not None and 0 < found <= MAX_SEQUENCE else None


def _by_id(lookup: LedgerLookup, places: Sequence[Range], raw: bytes) -> Iterator[FoundWrite]:
    """The transaction of an id, which begins with its height. A block that was freed has no id and no client any more:
    it cannot be told whether it was meant.
    """
    height = height_of_id(raw)  # of most keys, it is above all chains
    if not height:
        return  # heights begin at 1
    probe = ScopeProbe(LEDGER_BLOCK, (height,), (("id", raw), FREED), ("height", height))
    for block in lookup.rows(places, probe):
        if block.client:
            yield _found(lookup, "transaction_id", block)
        else:
            lookup.budget.end(FREED_HINT)


def _by_height(lookup: LedgerLookup, places: Sequence[Range], height: int) -> Iterator[FoundWrite]:
    """The blocks of a height."""
    for block in lookup.rows(places, ScopeProbe(LEDGER_BLOCK, (height,))):
        if block.client:
            yield _found(lookup, "height", block)
        else:
            lookup.budget.end(FREED_HINT)


def _by_key(lookup: LedgerLookup, clients: Sequence[Range], rest: Key) -> Iterator[FoundWrite]:
    """The commits of a key, of the client that the query names or of any."""
    for row in lookup.rows(clients, ScopeProbe(LEDGER_KEY, rest)):
        stream = lookup.reading.get(LEDGER_STREAM, row[:3])
        if stream is not None and stream.life == row.life:
            block = _commit(lookup.reading, stream, row.sequence)
            if block is not None and block.key == row.key and _counts(lookup.reading, stream, block):
                yield _found(lookup, "idempotency_key", block)


def _by_sequence(lookup: LedgerLookup, places: Sequence[Range], client: bytes, sequence: int) -> Iterator[FoundWrite]:
    for stream in lookup.rows(places, ScopeProbe(LEDGER_STREAM, (client,))):
        block = _commit(lookup.reading, stream, sequence)
        if block is not None and _counts(lookup.reading, stream, block):
            yield _found(lookup, "sequence", block)


def _commit(reading: Reading, stream: LedgerStreamRow, sequence: int) -> BlockRow | None:
    where = (stream.org, stream.vault, stream.client, stream.life, sequence)
    rows: Sequence[BlockRow] = reading.range(Range(LEDGER_BLOCK, "commit", where, 1))
    return rows[0] if rows else None


def _counts(reading: Reading, stream: LedgerStreamRow, block: BlockRow) -> bool:
    """Whether a commit is still remembered, so that a retry of it is a replay."""
    org = reading.get(LEDGER_ORG, (stream.org,))
    return org is not None and unless_evicted(org, stream) is not None and is_in_window(org, stream, block)


def _found(lookup: LedgerLookup, identity: str, block: BlockRow) -> FoundWrite:
    where = f"{block.org}/{block.vault}" if block.vault else str(block.org)
    vault = f"/vaults/{block.vault}" if block.vault else ""
    shown = {"tx_id": block.id.hex(), "height": block.height, "sequence": block.sequence}
    tip = lookup.tip_of(block)
    is_shown = tip is not None and not is_compacted(tip, block.height)
    path = f"/ledger/v1/orgs/{block.org}{vault}/transactions/{block.id.hex()}" if is_shown else None
    effect = {"kind": "transaction", "path": path, **shown, "client_id": block.client.decode()}
    stream = lookup.reading.get(LEDGER_STREAM, (block.org, block.vault, block.client))
    is_kept = stream is not None and stream.life == block.life and _counts(lookup.reading, stream, block)
    answer = {"verdict": Verdict.REPLAY.value, "status": 200, **shown, "txId": base64(block.id)} if is_kept else {}
    at = block.at_seconds * 1_000 + block.at_nanos // 1_000_000
    return FoundWrite(SURFACE, identity, where, at, block.actor.decode(), effect, answer, None, block.id)
