"""Responses: status, headers and body; server-sent events; and the cursor of live reads.

In an event stream every piece of content is a data event, followed by a control event with the next offset. A payload
is split at every line end, so that it cannot forge an event. The cursor prevents a cache between server and client from
answering a live read with the old response of another.
"""

from __future__ import annotations

from base64 import b64encode

import orjson

from semel.kernel.http_answer import Answer, Header
from semel.surfaces.streams.commands import Appended, Created
from semel.surfaces.streams.reading import StreamPage, StreamState
from semel.surfaces.streams.rules.media_type import is_json, is_text
from semel.surfaces.streams.rules.offsets import epoch_at, format_etag, format_offset, names_etag, offset_at
from semel.surfaces.streams.tables import RetentionRow, StreamRow

CLOSED: Header = (b"stream-closed", b"true")
REPLAYED: Header = (b"idempotency-replayed", b"true")
UP_TO_DATE: Header = (b"stream-up-to-date", b"true")
NO_STORE: Header = (b"cache-control", b"no-store")
NO_CACHE: Header = (b"cache-control", b"no-cache")
SETTLED: Header = (b"cache-control", b"public, max-age=60, stale-while-revalidate=300")
SETTLED_PRIVATE: Header = (b"cache-control", b"private, max-age=60, stale-while-revalidate=300")


def created(answer: Created, location: bytes) -> Answer:
    """201 for a new stream, 200 for an existing one."""
    headers = [(b"content-type", answer.content_type), _next(answer.tail, answer.tail_epoch)]
    if answer.is_new:
        headers.append((b"location", location))
    if answer.closed:
        headers.append(CLOSED)
    return Answer(201 if answer.is_new else 200, headers)


def appended(answer: Appended) -> Answer:
    """The outcome of an append, first or replayed."""
    headers = [_next(answer.tail, answer.tail_epoch)]
    if answer.closed:
        headers.append(CLOSED)
    if answer.epoch is not None:
        headers.append((b"producer-epoch", b"%d" % answer.epoch))
        headers.append((b"producer-seq", b"%d" % (answer.seq or 0)))
    if answer.replayed:
        headers.append(REPLAYED)
    return Answer(answer.status, headers)


def described(state: StreamState) -> Answer:
    """HEAD: the properties and the tail of the stream; with a key or a producer id also whether an append with this key
    is stored and where it ended, and the highest number of the producer.
    """
    stream = state.stream
    headers = [(b"content-type", stream.content_type), _next(stream.tail, epoch_at(stream, stream.tail)), NO_STORE]
    if stream.ttl_seconds is not None:
        headers.append((b"stream-ttl", b"%d" % stream.ttl_seconds))
    if stream.expires_text is not None:
        headers.append((b"stream-expires-at", stream.expires_text))
    if stream.closed:
        headers.append(CLOSED)
    if state.retention is not None:
        headers += _retained(stream, state.retention)
    if state.receipt is not None:
        headers += [REPLAYED, (b"idempotency-offset", offset_at(stream, state.receipt.tail))]
    if state.producer is not None:
        headers.append((b"producer-epoch", b"%d" % state.producer.epoch))
        headers.append((b"producer-seq", b"%d" % state.producer.seq))
    return Answer(200, headers)


def _retained(stream: StreamRow, retention: RetentionRow) -> list[Header]:
    """The retention of a stream, and the first offset that can be read."""
    headers = [(b"stream-earliest-offset", offset_at(stream, stream.floor or 0))]
    if retention.max_age_ms is not None:
        headers.append((b"stream-retention-age", b"%d" % (retention.max_age_ms // 1_000)))
    if retention.max_bytes is not None:
        headers.append((b"stream-retention-bytes", b"%d" % retention.max_bytes))
    return headers


def caught_up(page: StreamPage, *, at_now: bool, if_none_match: bytes, private: bool) -> Answer:
    """A catch-up read. Caches may store only content that can never change; a read at the tail must be revalidated."""
    headers = _page_headers(page)
    if at_now:
        return Answer(200, [*headers, NO_STORE], content_of(page))
    etag = format_etag(page.stream, page.start, page.end, is_final=page.is_final)
    freshness = NO_CACHE if page.at_tail else SETTLED_PRIVATE if private else SETTLED
    headers += [(b"etag", etag), freshness]
    if if_none_match and names_etag(if_none_match, etag):
        return Answer(304, [header for header in headers if header[0] != b"content-type"])
    return Answer(200, headers, content_of(page))


def polled(page: StreamPage, cursor: int) -> Answer:
    """A long poll that ended with content, with closure, or with nothing."""
    headers = [*_page_headers(page), (b"stream-cursor", b"%d" % cursor), NO_STORE]
    if page.pieces:
        return Answer(200, headers, content_of(page))
    return Answer(204, [header for header in headers if header[0] != b"content-type"])


def _page_headers(page: StreamPage) -> list[Header]:
    headers = [(b"content-type", page.stream.content_type), _next(page.end, epoch_at(page.stream, page.end))]
    if page.at_tail:
        headers.append(UP_TO_DATE)
    if page.is_final:
        headers.append(CLOSED)
    return headers


def content_of(page: StreamPage) -> bytes:
    """The content of a page: one array of messages, or the bytes as appended."""
    pieces = page.pieces
    if is_json(page.stream.content_type):
        return b"".join((b"[", pieces[0] if len(pieces) == 1 else b",".join(pieces), b"]"))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _next(position: int, epoch: int) -> Header:
    return b"stream-next-offset", format_offset(position, epoch)


PART_BYTES = 48 * 1024
"""Content bytes of one part of an event: a multiple of three, so that parts of base64 can be joined."""

_RETURN = ord("\r")


def sse_headers(content_type: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of an event stream."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    if not is_text(content_type):
        headers.append((b"stream-sse-data-encoding", b"base64"))
    return headers


def parts_of(content: bytes) -> int:
    """The number of parts of the data event of this content."""
    return max(1, -(-len(content) // PART_BYTES))


def event_part(content: bytes, content_type: bytes, number: int) -> bytes:
    """One part of the data event of a page's content. Only the complete event can be decoded.

    An event may be six times as long as its content, so a large one is never built as a whole.
    """
    start, stop = number * PART_BYTES, (number + 1) * PART_BYTES
    piece = content[start:stop]
    if is_text(content_type):
        if start and piece.startswith(b"\n") and content[start - 1] == _RETURN:
            piece = piece[1:]  # the line ended in the part before
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata:")
    else:
        piece = b64encode(piece)
    return (b"" if start else b"event: data\ndata:") + piece + (b"\n\n" if stop >= len(content) else b"")


def control_event(page: StreamPage, cursor: int) -> bytes:
    """The control event: the next offset of the reader."""
    facts: dict[str, str | bool] = {"streamNextOffset": offset_at(page.stream, page.end).decode()}
    if page.is_final:
        facts["streamClosed"] = True
    else:
        facts["streamCursor"] = str(cursor)
    if page.at_tail:
        facts["upToDate"] = True
    return b"event: control\ndata:" + orjson.dumps(facts) + b"\n\n"


INTERVAL_MS = 20_000
_EPOCH_MS = 1_728_432_000_000
_MAX_JUMP_MS = 3_600_000


def next_cursor(now_ms: int, sent: int | None, chance: int) -> int:
    """The present interval, or one later than the cursor sent; `chance` is any non-negative number."""
    current = (now_ms - _EPOCH_MS) // INTERVAL_MS
    if sent is None or sent < current:
        return current
    jump_ms = 1_000 + chance % _MAX_JUMP_MS
    return sent + max(1, jump_ms // INTERVAL_MS)
