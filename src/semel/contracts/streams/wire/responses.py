"""Answers of streams as HTTP: status, headers, body."""

from __future__ import annotations

from semel.contracts.streams.commands import Appended, Created
from semel.contracts.streams.etags import format_etag, matches_any
from semel.contracts.streams.media_type import is_json
from semel.contracts.streams.offsets import format_offset
from semel.contracts.streams.reading import Page
from semel.contracts.streams.rules.epochs import epoch_at
from semel.contracts.streams.tables import StreamRow
from semel.kernel.http_answer import Answer, Header

CLOSED: Header = (b"stream-closed", b"true")
REPLAYED: Header = (b"idempotency-replayed", b"true")
UP_TO_DATE: Header = (b"stream-up-to-date", b"true")
NO_STORE: Header = (b"cache-control", b"no-store")
NO_CACHE: Header = (b"cache-control", b"no-cache")
SETTLED: Header = (b"cache-control", b"public, max-age=60, stale-while-revalidate=300")
SETTLED_PRIVATE: Header = (b"cache-control", b"private, max-age=60, stale-while-revalidate=300")


def created(answer: Created, location: bytes) -> Answer:
    """201 for a new stream, 200 for one that was there."""
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


def described(stream: StreamRow) -> Answer:
    """HEAD: what the stream is, and where it stands."""
    headers = [(b"content-type", stream.content_type), _next(stream.tail, epoch_at(stream, stream.tail)), NO_STORE]
    if stream.ttl_seconds is not None:
        headers.append((b"stream-ttl", b"%d" % stream.ttl_seconds))
    if stream.expires_text is not None:
        headers.append((b"stream-expires-at", stream.expires_text))
    if stream.closed:
        headers.append(CLOSED)
    return Answer(200, headers)


def caught_up(page: Page, *, at_now: bool, if_none_match: bytes, private: bool) -> Answer:
    """A catch-up read. Only what can never change may be kept by caches; the tail must be asked for again."""
    headers = _page_headers(page)
    if at_now:
        return Answer(200, [*headers, NO_STORE], content_of(page))
    etag = format_etag(page.stream, page.start, page.end, is_final=page.is_final)
    settled = SETTLED_PRIVATE if private else SETTLED
    headers += [(b"etag", etag), NO_CACHE if page.at_tail else settled]
    if if_none_match and matches_any(if_none_match, etag):
        return Answer(304, [header for header in headers if header[0] != b"content-type"])
    return Answer(200, headers, content_of(page))


def polled(page: Page, cursor: int) -> Answer:
    """A long poll that ended with content, with closure or without anything."""
    headers = [*_page_headers(page), (b"stream-cursor", b"%d" % cursor), NO_STORE]
    if page.pieces:
        return Answer(200, headers, content_of(page))
    return Answer(204, [header for header in headers if header[0] != b"content-type"])


def _page_headers(page: Page) -> list[Header]:
    headers = [(b"content-type", page.stream.content_type), _next(page.end, epoch_at(page.stream, page.end))]
    if page.at_tail:
        headers.append(UP_TO_DATE)
    if page.is_final:
        headers.append(CLOSED)
    return headers


def content_of(page: Page) -> bytes:
    """The content of a page: one array of messages, or the bytes as appended."""
    if is_json(page.stream.content_type):
        return b"[" + b",".join(page.pieces) + b"]"
    return b"".join(page.pieces)


def _next(position: int, epoch: int) -> Header:
    return b"stream-next-offset", format_offset(position, epoch)
