"""Writes of streams by their identities: an idempotency key, a producer id, or the name of a stream.

A receipt and the state of a producer are stored under their stream. Without a place, the streams that the caller may
read are tried: those with a prefix of its scopes in the order of their names, then those that its scopes name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from semel.engine.reading import Reading
from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER, Verdict
from semel.server.auth.principals import Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, name_pages, path_of, probe_pages
from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.table import Key
from semel.surfaces.streams.reading import names_with_prefix
from semel.surfaces.streams.rules.expiry import is_alive
from semel.surfaces.streams.rules.offsets import offset_at
from semel.surfaces.streams.tables import CHUNK, PRODUCER, RECEIPT, STREAM, ProducerRow, ReceiptRow, StreamRow
from semel.surfaces.streams.wire.headers import ROOT, stored_name

SURFACE = "streams"
HINT = "Not every stream was tried: name the stream with `in`."
_SAFE = "/"


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The stream of this name; then the appends under this key and the producers of this id."""
    if query.place is None or query.place == query.id:
        stream = _stream(reading, query, query.id)
        if stream is not None:
            yield _creation(stream)
    for receipts, producers in _stored(reading, query, budget):
        streams = reading.find(STREAM, [(scope,) for scope, _ in {**receipts, **producers}])
        living = {row.scope: row for row in streams.values() if _is_readable(reading, query, row)}
        for (scope, _), receipt in sorted(receipts.items()):
            if scope in living and receipt.id == living[scope].id and reading.now.expiry_ms < receipt.expires_at:
                yield _append(reading, living[scope], receipt)
        for (scope, _), producer in sorted(producers.items()):
            if scope in living and producer.id == living[scope].id:
                yield _producer(living[scope], producer)


def _stream(reading: Reading, query: WriteQuery, name: bytes) -> StreamRow | None:
    """The stream of a name, if it is there and the caller may read it."""
    row = reading.get(STREAM, (stored_name(name),))
    return row if row is not None and row.path == name and _is_readable(reading, query, row) else None


def _is_readable(reading: Reading, query: WriteQuery, row: StreamRow) -> bool:
    return query.caller.may(Role.READ, SURFACE, row.path) and is_alive(row, reading.now)


Stored = tuple[Mapping[Key, ReceiptRow], Mapping[Key, ProducerRow]]
"""Receipts and producers by the stored name of their stream and their own."""


def _stored(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[Stored]:
    """What is stored under the identity in the streams that the query means and the caller may read."""
    own = pack(query.id)
    if query.place is not None:
        stream = _stream(reading, query, query.place)
        if stream is not None:
            keys = [(stream.scope, own)]
            yield reading.find(RECEIPT, keys), reading.find(PRODUCER, keys)
    elif query.caller.has(Role.READ):
        reach = query.caller.reach(SURFACE)
        prefixes = tuple(name for name, is_prefix in reach if is_prefix)
        for streams in _spans(prefixes):
            probes = (ScopeProbe(RECEIPT, (own,)), ScopeProbe(PRODUCER, (own,)))
            for rows in probe_pages(reading, streams, probes, budget, HINT):
                yield rows[0], rows[1]
        names = [name for name, is_prefix in reach if not is_prefix and not name.startswith(prefixes)]
        for some in name_pages(names, budget, HINT):
            keys = [(stored_name(name), own) for name in some]
            yield reading.find(RECEIPT, keys), reading.find(PRODUCER, keys)


def _spans(prefixes: Sequence[bytes]) -> Iterator[Range]:
    """The streams whose names have one of these prefixes, each of them once."""
    known: tuple[bytes, ...] = ()
    for prefix in sorted(prefixes):
        if not prefix.startswith(known):
            known = (*known, prefix)
            span = names_with_prefix(prefix)
            stop = () if span.stop is None else (span.stop,)
            yield Range(STREAM, "path", (), 1, start=(span.start,), stop=stop)


def _creation(stream: StreamRow) -> FoundWrite:
    tail = offset_at(stream, stream.tail).decode()
    return FoundWrite(
        SURFACE,
        "stream",
        _shown(stream),
        stream.created_at,
        None,
        {"kind": "stream", "path": _path(stream), "next_offset": tail, "closed": bool(stream.closed)},
        {"verdict": Verdict.REPLAY.value, "status": 200},
        None if stream.deadline == NEVER else stream.deadline,
        None,
    )


def _append(reading: Reading, stream: StreamRow, receipt: ReceiptRow) -> FoundWrite:
    at, start = _times(reading, stream, receipt)
    offset = offset_at(stream, receipt.tail).decode()
    effect = {"kind": "append", "path": None, "next_offset": offset, "closed": bool(receipt.closed)}
    if start is not None:
        effect["path"] = f"{_path(stream)}?offset={offset_at(stream, start).decode()}"
    answer = {"verdict": Verdict.REPLAY.value, "status": receipt.status, "next_offset": offset}
    key = append_retries(stream.scope, receipt.key)
    return FoundWrite(SURFACE, "idempotency_key", _shown(stream), at, None, effect, answer, receipt.expires_at, key)


def _times(reading: Reading, stream: StreamRow, receipt: ReceiptRow) -> tuple[int | None, int | None]:
    """When an append was committed, and the position where its content begins; None for what is not known any more."""
    if receipt.closed:
        # The last write of its stream; whether it had content is not stored.
        return stream.updated_at if stream.closed else None, None
    chunk = reading.get(CHUNK, (stream.id, receipt.tail))
    if chunk is None:
        return None, None
    before = reading.latest(CHUNK, [(stream.id,)], receipt.tail).get((stream.id,))
    first = max(stream.inherited, stream.floor or 0, 0)
    return chunk.committed_at, first if before is None else before.end_at


def _producer(stream: StreamRow, producer: ProducerRow) -> FoundWrite:
    return FoundWrite(
        SURFACE,
        "producer_id",
        _shown(stream),
        None,
        None,
        {"kind": "producer", "path": _path(stream), "epoch": producer.epoch, "seq": producer.seq},
        {"verdict": Verdict.REPLAY.value, "status": 204, "epoch": producer.epoch, "seq": producer.seq},
        None,
        producer_retries(stream.scope, producer.producer),
    )


def append_retries(scope: bytes, key: bytes) -> bytes:
    """The key of the retries of an append: both parts begin with the tag of their form."""
    return scope + key


def producer_retries(scope: bytes, producer: bytes) -> bytes:
    """The key of the retries of a producer."""
    return b"p" + scope + producer


def _shown(stream: StreamRow) -> str:
    return stream.path.decode("utf-8", "replace")


def _path(stream: StreamRow) -> str:
    return path_of(ROOT.decode(), stream.path, _SAFE)
