"""Requests: PUT and POST from headers and body to commands, GET from the query string to a read."""

from __future__ import annotations

import re
from enum import Enum
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from semel.kernel.errors import Refusal, Refused
from semel.kernel.header_fields import HeaderFields
from semel.kernel.json.messages import TooManyMessagesError, split_messages
from semel.kernel.json.text import JsonError
from semel.kernel.keys import InvalidKeyError, pack, parse_idempotency_key
from semel.surfaces.streams.commands import NO_CONTENT, UNREAD, Append, Content, Create, ProducerClaim
from semel.surfaces.streams.fork_plan import ForkPlan, ForkRequest
from semel.surfaces.streams.rules.forks import SOURCE_NOT_FOUND
from semel.surfaces.streams.rules.media_type import DEFAULT_MEDIA_TYPE, is_json, is_usable
from semel.surfaces.streams.rules.offsets import EARLIEST, Offset, parse_offset
from semel.surfaces.streams.wire.headers import (
    ALIAS,
    MAX_PRODUCER_ID_BYTES,
    ROOT,
    name_in,
    parse_expiry,
    parse_producer,
    parse_retention,
    stored_name,
)

MAX_STREAM_SEQ_BYTES = 1_024
_COUNT = re.compile(rb"0|[1-9][0-9]{0,14}")
MAX_CONTENT_TYPE_BYTES = 256

EMPTY_BODY = Refusal("EMPTY_BODY", "Send content, or Stream-Closed: true to close the stream.")
MISSING_CONTENT_TYPE = Refusal("MISSING_CONTENT_TYPE", "Send the Content-Type of the content.")
EMPTY_ARRAY = Refusal("INVALID_JSON", "The array is empty: there is nothing to append.")
TOO_LARGE = Refusal("PAYLOAD_TOO_LARGE", "The body is larger than this server accepts; split it.")


def parse_create(
    name: bytes, life: bytes, fields: HeaderFields, body: bytes, most: int | None, plan: ForkPlan | None = None
) -> Create:
    """Parse a PUT of at most `most` messages; with None, JSON content is not parsed."""
    _refuse_encoded(fields)
    ttl_seconds, expires_at, expires_text = parse_expiry(fields)
    content_type = named_type(fields) or (DEFAULT_MEDIA_TYPE if plan is None else plan.content_type)
    content = NO_CONTENT if not body else parse_content(content_type, body, most, allow_empty_array=True)
    return Create(
        scope=stored_name(name),
        path=name,
        id=life,
        content_type=content_type,
        ttl_seconds=ttl_seconds,
        expires_at=expires_at,
        expires_text=expires_text,
        closed=fields.is_true(b"stream-closed"),
        content=content,
        retention=parse_retention(fields),
        fork=None if plan is None else plan.fork,
    )


def named_type(fields: HeaderFields) -> bytes | None:
    """The content type that a PUT names; None if it names none, or one that cannot be used."""
    sent = _content_type(fields)
    return sent if sent is not None and is_usable(sent) else None


def parse_fork(fields: HeaderFields) -> ForkRequest | None:
    """The fork headers of a PUT; None without them."""
    source = fields.single(b"stream-forked-from", "INVALID_FORK")
    sub_offset = fields.single(b"stream-fork-sub-offset", "INVALID_FORK")
    if sub_offset is not None and _COUNT.fullmatch(sub_offset) is None:
        raise Refused("INVALID_FORK", "Stream-Fork-Sub-Offset must be a whole number such as 3, without sign.")
    if source is None:
        if sub_offset is not None:
            raise Refused("INVALID_FORK", "Stream-Fork-Sub-Offset needs Stream-Forked-From.")
        return None
    name = _source_name(source)
    return ForkRequest(stored_name(name), name, _fork_offset(fields), int(sub_offset or 0))


def _source_name(source: bytes) -> bytes:
    if not source.startswith((ROOT, ALIAS)):
        raise Refused("INVALID_FORK", f"Stream-Forked-From must be the path of a stream, {ROOT.decode()}<name>.")
    try:
        return name_in(source)
    except Refused as error:
        if error.refusal.code == "NOT_FOUND":
            raise Refused.of(SOURCE_NOT_FOUND) from None
        raise Refused("INVALID_FORK", f"Stream-Forked-From: {error.refusal.message}") from None


def _fork_offset(fields: HeaderFields) -> Offset | None:
    sent = fields.single(b"stream-fork-offset", "INVALID_FORK")
    if sent is None:
        return None
    try:
        offset = parse_offset(sent)
    except ValueError:
        offset = None
    if offset is None or offset == EARLIEST:
        raise Refused("INVALID_FORK", "Stream-Fork-Offset must be an offset that a read of the source gave.")
    return offset


def parse_append(name: bytes, fields: HeaderFields, body: bytes | None, most: int | None) -> Append:
    """Parse a POST of at most `most` messages; with None, JSON content is not parsed.

    The body is None if it was larger than the limit and was not read to its end.
    """
    _refuse_encoded(fields)
    producer = parse_producer(fields)
    key = _idempotency_key(fields)
    seq = fields.single(b"stream-seq", "INVALID_REQUEST")
    if seq is not None and len(seq) > MAX_STREAM_SEQ_BYTES:
        raise Refused("INVALID_REQUEST", f"Stream-Seq must have at most {MAX_STREAM_SEQ_BYTES} bytes.")
    closes = fields.is_true(b"stream-closed")
    content_type = _content_type(fields) if body else None
    return Append(
        scope=stored_name(name),
        key=None if key is None else pack(key),
        fingerprint=b"" if key is None or body is None else fingerprint(body, closes, producer),
        content_type=content_type,
        content=parse_content(content_type, body, most) if body and content_type is not None else NO_CONTENT,
        closes=closes,
        seq=seq,
        producer=producer,
        flaw=_shape_flaw(body, closes, content_type),
        if_match=b",".join(fields.all(b"if-match")) if b"if-match" in fields.one else None,
    )


def fingerprint(body: bytes, closes: bool, producer: ProducerClaim | None) -> bytes:
    """The fingerprint of a keyed append: the bytes, the close flag and the producer tuple."""
    head = b"close:" if closes else b"open:"
    if producer is None:
        digest = sha256(head + b"-:")
    else:
        digest = sha256(b"%s%d:%s:%d:%d:" % (head, len(producer.id), producer.id, producer.epoch, producer.seq))
    digest.update(body)
    return digest.digest()


def plain_fingerprint(body: bytes) -> bytes:
    """As `fingerprint`, for an append that has no producer and leaves the stream open."""
    return sha256(b"open:-:" + body).digest()


def parse_lookup(fields: HeaderFields) -> tuple[bytes | None, bytes | None]:
    """The packed key and producer id that a HEAD asks about; None for each that is absent."""
    producer = fields.single(b"lookup-producer", "INVALID_PRODUCER")
    if producer is not None and not 1 <= len(producer) <= MAX_PRODUCER_ID_BYTES:
        raise Refused("INVALID_PRODUCER", f"Lookup-Producer must have 1 to {MAX_PRODUCER_ID_BYTES} bytes.")
    key = _key_in(fields, b"lookup-key")
    return None if key is None else pack(key), None if producer is None else pack(producer)


def _idempotency_key(fields: HeaderFields) -> bytes | None:
    return _key_in(fields, b"idempotency-key")


def _key_in(fields: HeaderFields, header: bytes) -> bytes | None:
    if header not in fields.one:
        return None
    try:
        return parse_idempotency_key(fields.all(header))
    except InvalidKeyError as error:
        raise Refused("INVALID_IDEMPOTENCY_KEY", str(error)) from None


def _refuse_encoded(fields: HeaderFields) -> None:
    """Refuse compressed content: it is stored as sent, and a reader would not know that it is compressed."""
    if b"content-encoding" not in fields.one:
        return
    named = b",".join(fields.all(b"content-encoding")).split(b",")
    if any(encoding.strip().lower() not in (b"", b"identity") for encoding in named):
        detail = "Send the content without a Content-Encoding; this server does not decode it."
        raise Refused("UNSUPPORTED_ENCODING", detail, headers=((b"accept-encoding", b"identity"),))


def _content_type(fields: HeaderFields) -> bytes | None:
    """The content type as it was sent."""
    sent = fields.get(b"content-type")
    if sent is None or not sent.strip():
        return None
    if len(sent) > MAX_CONTENT_TYPE_BYTES:
        raise Refused("INVALID_REQUEST", f"Content-Type must have at most {MAX_CONTENT_TYPE_BYTES} bytes.")
    return sent


def parse_content(content_type: bytes, body: bytes, most: int | None, *, allow_empty_array: bool = False) -> Content:
    """A body as it is stored; with a flaw if it does not match its content type, or has too many messages."""
    if not is_json(content_type):
        return Content(body, 1)
    if most is None:
        return UNREAD
    try:
        messages = split_messages(body, most)
    except JsonError as error:
        return Content(b"", 0, Refusal("INVALID_JSON", str(error)))
    except TooManyMessagesError:
        return Content(b"", 0, Refusal("PAYLOAD_TOO_LARGE", f"An append may have at most {most} messages; split it."))
    if not messages.total and not allow_empty_array:
        return Content(b"", 0, EMPTY_ARRAY)
    return Content(messages.data, messages.total)


def _shape_flaw(body: bytes | None, closes: bool, content_type: bytes | None) -> Refusal | None:
    if body is None:
        return TOO_LARGE
    if not body:
        return None if closes else EMPTY_BODY
    return MISSING_CONTENT_TYPE if content_type is None else None


class ReadMode(Enum):
    """The way to wait for content that does not exist yet."""

    CATCH_UP = "catch-up"
    LONG_POLL = "long-poll"
    SSE = "sse"


class ReadRequest(NamedTuple):
    """A GET. `position` is None for the tail."""

    mode: ReadMode
    position: Offset | None
    cursor: int | None


def parse_read(query: bytes) -> ReadRequest:
    """Parse a query string; unknown parameters are ignored."""
    asked = _parameters(query)
    offsets = asked.get(b"offset", [])
    live = asked.get(b"live", [])
    if len(offsets) > 1:
        raise Refused("INVALID_OFFSET", "Give offset once.")
    if len(live) > 1:
        raise Refused("INVALID_REQUEST", "Give live once.")
    mode = _mode(live[0]) if live else ReadMode.CATCH_UP
    if mode is not ReadMode.CATCH_UP and not offsets:
        raise Refused("INVALID_OFFSET", "A live read needs an offset; use offset=-1 for the beginning.")
    return ReadRequest(mode, _position(offsets[0]) if offsets else EARLIEST, _cursor(asked.get(b"cursor", [])))


def _parameters(query: bytes) -> dict[bytes, list[bytes]]:
    asked: dict[bytes, list[bytes]] = {}
    for part in query.split(b"&") if query else ():
        name, _, value = part.partition(b"=")
        asked.setdefault(unquote_to_bytes(name), []).append(unquote_to_bytes(value))
    return asked


def _mode(text: bytes) -> ReadMode:
    for mode in (ReadMode.LONG_POLL, ReadMode.SSE):
        if text == mode.value.encode():
            return mode
    raise Refused("INVALID_REQUEST", "live must be long-poll or sse.")


def _position(text: bytes) -> Offset | None:
    try:
        return parse_offset(text)
    except ValueError:
        raise Refused("INVALID_OFFSET", "Use an offset that this server gave out, or -1, or now.") from None


def _cursor(given: list[bytes]) -> int | None:
    return int(given[0]) if given and given[0].isdigit() and len(given[0]) <= 15 else None
