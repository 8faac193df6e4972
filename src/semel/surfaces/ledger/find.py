"""Transactions of the ledger by their identities: a transaction id, an idempotency key, a client's sequence, a height.

A block is stored under its place, and a key under its place and client. Without a place, the places that the caller may
read are tried in the order of their slugs. A place is written `ORG`, `ORG/VAULT` or `ORG/VAULT/CLIENT`; vault 0 is the
organization's own place. A sequence is written `CLIENT/SEQUENCE`, or alone if the place names the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.principals import Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, key_pages
from semel.store.protocol import Range
from semel.surfaces.ledger.access import SURFACE, reaches
from semel.surfaces.ledger.limits import MAX_SEQUENCE
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.reading import tip_row
from semel.surfaces.ledger.rules.commits import height_of_id, is_in_window, unless_evicted
from semel.surfaces.ledger.tables import (
    LEDGER_BLOCK,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    BlockRow,
    LedgerStreamRow,
)
from semel.surfaces.ledger.wire.answers import base64
from semel.surfaces.ledger.wire.members import digits
from semel.surfaces.ledger.wire.urls import tx_id

HINT = "Not every place of the ledger was tried: name the organization, the vault and the client with `in`."
_SLUGS_LIMIT = 2**63


class NamedPlace(NamedTuple):
    """The part of the ledger that a query names; None for any."""

    org: int | None = None
    vault: int | None = None
    client: bytes | None = None


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The transactions of this id and of this key, the commit of this sequence, the block of this height."""
    named = _named_place(query)
    raw = _sixteen_bytes(query)
    sequence = _sequence(query, named) if named is not None else None
    height = query.number if named is not None and named.org is not None and named.client is None else None
    if named is None or (raw is None and sequence is None and height is None):
        return
    for places in _places(reading, query, named, budget):
        if raw is not None:
            yield from _by_height(reading, places, height_of_id(raw), raw)
            yield from _by_key(reading, places, named, raw, budget)
        if sequence is not None:
            yield from _by_sequence(reading, places, *sequence)
        if height is not None:
            yield from _by_height(reading, places, height, None)


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


def _places(
    reading: Reading, query: WriteQuery, named: NamedPlace, budget: ProbeBudget
) -> Iterator[Sequence[LedgerPlace]]:
    """The places that the query means and the caller may read."""
    prefix = tuple(part for part in (named.org, named.vault) if part is not None)
    wanted = Range(LEDGER_PLACE, "", prefix[:1], 1)
    if len(prefix) > 1:
        wanted = wanted._replace(start=prefix[1:], stop=(prefix[1] + 1,))
    for keys in key_pages(reading, wanted, budget, HINT):
        places = [LedgerPlace(*key) for key in keys]
        yield [place for place in places if reaches(query.caller, Role.READ, place) and _is_readable(reading, place)]


def _is_readable(reading: Reading, place: LedgerPlace) -> bool:
    try:
        tip_row(reading, place)
    except Refused:
        return False
    return True


def _by_height(reading: Reading, places: Sequence[LedgerPlace], height: int, raw: bytes | None) -> Iterator[FoundWrite]:
    """The blocks of a height; with an id, those whose transaction has it."""
    blocks = reading.find(LEDGER_BLOCK, [(*place, height) for place in places])
    for _, block in sorted(blocks.items()):
        if block.client and raw in (None, block.id):
            yield _found(reading, "height" if raw is None else "transaction_id", block)


def _by_key(
    reading: Reading, places: Sequence[LedgerPlace], named: NamedPlace, key: bytes, budget: ProbeBudget
) -> Iterator[FoundWrite]:
    """The commits of a key; the clients of a place are tried if the query names none."""
    for place in places:
        clients = Range(LEDGER_STREAM, "", tuple(place), 1)
        pages = iter([[(*place, named.client)]]) if named.client else key_pages(reading, clients, budget, HINT)
        for page in pages:
            keys = reading.find(LEDGER_KEY, [(*stream, key) for stream in page])
            streams = reading.find(LEDGER_STREAM, [found[:3] for found in keys])
            for found, row in sorted(keys.items()):
                stream = streams.get(found[:3])
                block = _commit(reading, stream, row.sequence) if stream and stream.life == row.life else None
                if stream is not None and block is not None and block.key == key and _counts(reading, stream, block):
                    yield _found(reading, "idempotency_key", block)


def _by_sequence(reading: Reading, places: Sequence[LedgerPlace], client: bytes, sequence: int) -> Iterator[FoundWrite]:
    streams = reading.find(LEDGER_STREAM, [(*place, client) for place in places])
    for _, stream in sorted(streams.items()):
        block = _commit(reading, stream, sequence)
        if block is not None and _counts(reading, stream, block):
            yield _found(reading, "sequence", block)


def _commit(reading: Reading, stream: LedgerStreamRow, sequence: int) -> BlockRow | None:
    where = (stream.org, stream.vault, stream.client, stream.life, sequence)
    rows: Sequence[BlockRow] = reading.range(Range(LEDGER_BLOCK, "commit", where, 1))
    return rows[0] if rows else None


def _counts(reading: Reading, stream: LedgerStreamRow, block: BlockRow) -> bool:
    """Whether a commit is still remembered, so that a retry of it is a replay."""
    org = reading.get(LEDGER_ORG, (stream.org,))
    return org is not None and unless_evicted(org, stream) is not None and is_in_window(org, stream, block)


def _found(reading: Reading, identity: str, block: BlockRow) -> FoundWrite:
    where = f"{block.org}/{block.vault}" if block.vault else str(block.org)
    vault = f"/vaults/{block.vault}" if block.vault else ""
    shown = {"tx_id": block.id.hex(), "height": block.height, "sequence": block.sequence}
    path = f"/ledger/v1/orgs/{block.org}{vault}/transactions/{block.id.hex()}"
    effect = {"kind": "transaction", "path": path, **shown, "client_id": block.client.decode()}
    stream = reading.get(LEDGER_STREAM, (block.org, block.vault, block.client))
    is_kept = stream is not None and stream.life == block.life and _counts(reading, stream, block)
    answer = {"verdict": Verdict.REPLAY.value, "status": 200, **shown, "txId": base64(block.id)} if is_kept else {}
    at = block.at_seconds * 1_000 + block.at_nanos // 1_000_000
    return FoundWrite(SURFACE, identity, where, at, block.actor.decode(), effect, answer, None, block.id)
