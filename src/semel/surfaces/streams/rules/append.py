"""Append (POST): the steps of the decision, in order.

| step | reads | possible refusal or answer |
|---|---|---|
| 1 | the stream | not found |
| 2 | the form of the request | empty, no content type, too large |
| 3 | the receipt of its key | replay, mismatch |
| 4 | whether the stream is closed | retry of the close, second close, closed |
| 5 | the content type | a different one |
| 6 | the state of the producer | fenced, refused, gap, duplicate |
| 7 | `If-Match` | a different tail; a retry that took effect is answered before this step |
| 8 | `Stream-Seq` | not greater than the last |
| 9 | the content | not JSON, empty, too many messages |

Only an append that passes all steps changes anything: data, tail, closure, sequence, producer and receipt in one
commit. A refusal leaves key, sequence and producer unchanged, so the same request can be sent again after the cause is
corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Order, View
from semel.engine.reading import Reading
from semel.kernel import producer as producers
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import Verdict, Window, judge
from semel.surfaces.epoch import epoch_of
from semel.surfaces.streams.commands import Append, Appended
from semel.surfaces.streams.rules.expiry import living, missing, use
from semel.surfaces.streams.rules.media_type import same_media_type
from semel.surfaces.streams.rules.offsets import entered, epoch_at, etag_names_tail, offset_at
from semel.surfaces.streams.subscriptions.tables import MOVED, TOPIC, MovedRow
from semel.surfaces.streams.tables import (
    CHUNK,
    PRODUCER,
    RECEIPT,
    STREAM,
    ProducerRow,
    ReceiptRow,
    StreamRow,
    new_chunk,
    receipt_checksum,
)


class _Case(NamedTuple):
    """One append and the state that its decision needs."""

    command: Append
    stream: StreamRow
    receipt: ReceiptRow | None
    producer: producers.ProducerState | None
    now: Now


def append(view: View, command: Append, now: Now, keep: Window) -> DecisionResult:
    """Decide an append step by step; the first step with an answer decides."""
    known = view.get(STREAM, (command.scope,))
    stream = living(known, now)
    if stream is None:
        return DecisionResult(missing(known))
    case = _case(view, command, stream, now)
    for step in _STEPS:
        said = step(case)
        if said is not None:
            if _waits_for_predecessor(view, said, command):
                return DecisionResult(None, later=True)
            return DecisionResult(said, touches=() if isinstance(said, Refusal) else use(stream, case.now))
    return _commit(view, case, keep)


def is_decided_without_content(view: View | Reading, command: Append, now: Now) -> bool:
    """Whether a step before the last one decides, so that the content need not be parsed."""
    stream = living(view.get(STREAM, (command.scope,)), now)
    if stream is None:
        return True
    case = _case(view, command, stream, now)
    return any(step(case) is not None for step in _STEPS[:-1])


def sequence_of(command: Append) -> Order | None:
    """The position in the sequence of its producer epoch; None without a producer."""
    claim = command.producer
    if claim is None:
        return None
    return Order(b"%s\x00%s\x00%d" % (command.scope, claim.packed, claim.epoch), claim.seq)


def _case(view: View | Reading, command: Append, stream: StreamRow, now: Now) -> _Case:
    receipt, producer = _receipt(view, command, stream), _producer(view, command, stream)
    return _Case(command, stream, receipt, producer, now.not_before(stream.updated_at))


def _waits_for_predecessor(view: View, said: Appended | Refusal, command: Append) -> bool:
    """Whether the append before this one is still in the queue: a producer may send several, and they may arrive out of
    order.
    """
    order = sequence_of(command) if isinstance(said, Refusal) and said.code == "PRODUCER_GAP" else None
    return order is not None and view.is_admitted(order._replace(number=order.number - 1))


def _receipt(view: View | Reading, command: Append, stream: StreamRow) -> ReceiptRow | None:
    if command.key is None:
        return None
    row = view.get(RECEIPT, (command.scope, command.key))
    return row if row is not None and row.id == stream.id else None


def _producer(view: View | Reading, command: Append, stream: StreamRow) -> producers.ProducerState | None:
    if command.producer is None:
        return None
    row = view.get(PRODUCER, (command.scope, command.producer.packed))
    return producers.ProducerState(row.epoch, row.seq) if row is not None and row.id == stream.id else None


def _shape(case: _Case) -> Refusal | None:
    return case.command.flaw


def _known_key(case: _Case) -> Appended | Refusal | None:
    if case.receipt is None:
        return None
    verdict = judge(case.receipt, case.command.fingerprint, case.now.expiry_ms)
    if verdict is Verdict.MISMATCH:
        return Refusal("IDEMPOTENCY_MISMATCH", "This key was used for another request on this stream; use a new key.")
    if verdict is Verdict.FRESH:
        return None
    kept = case.receipt
    tail_epoch = epoch_at(case.stream, kept.tail)
    return Appended(kept.status, kept.tail, bool(kept.closed), kept.epoch, kept.seq, True, tail_epoch=tail_epoch)


def _closed(case: _Case) -> Appended | Refusal | None:
    command, stream = case.command, case.stream
    if not stream.closed:
        return None
    claim, tail_epoch = command.producer, epoch_at(stream, stream.tail)
    if claim is not None and (claim.id, claim.epoch, claim.seq) == (
        stream.closer_id,
        stream.closer_epoch,
        stream.closer_seq,
    ):
        return Appended(204, stream.tail, True, claim.epoch, claim.seq, tail_epoch=tail_epoch)
    if claim is None and command.closes and not command.content.data and command.content.flaw is None:
        return Appended(204, stream.tail, True, tail_epoch=tail_epoch)
    headers = ((b"stream-closed", b"true"), (b"stream-next-offset", offset_at(stream, stream.tail)))
    return Refusal("STREAM_CLOSED", "The stream is closed and accepts no more content.", headers=headers)


def _content_type(case: _Case) -> Refusal | None:
    sent = case.command.content_type
    if sent is None or same_media_type(sent, case.stream.content_type):
        return None
    kind = case.stream.content_type.decode("latin-1")
    return Refusal("CONTENT_TYPE_MISMATCH", f"The stream holds {kind}; send that content type.")


def _producer_state(case: _Case) -> Appended | Refusal | None:
    claim = case.command.producer
    if claim is None:
        return None
    verdict = producers.judge(case.producer, claim.epoch, claim.seq)
    if verdict is Verdict.FRESH:
        return None
    if verdict is Verdict.REPLAY:
        assert case.producer is not None
        tail = case.stream.tail
        tail_epoch = epoch_at(case.stream, tail)
        return Appended(204, tail, bool(case.stream.closed), *case.producer, tail_epoch=tail_epoch)
    return _producer_refusal(verdict, case)


def _producer_refusal(verdict: Verdict, case: _Case) -> Refusal:
    claim = case.command.producer
    assert claim is not None
    if verdict is Verdict.FENCED:
        assert case.producer is not None
        known = str(case.producer.epoch).encode()
        detail = "A newer epoch of this producer has taken over; stop, or open a newer epoch with sequence 0."
        return Refusal("PRODUCER_FENCED", detail, headers=((b"producer-epoch", known),))
    if verdict is Verdict.REFUSED:
        return Refusal("INVALID_PRODUCER", "A new epoch must begin with sequence 0.")
    expected = producers.expected_seq(case.producer)
    headers = (
        (b"producer-expected-seq", str(expected).encode()),
        (b"producer-received-seq", str(claim.seq).encode()),
    )
    return Refusal("PRODUCER_GAP", f"Sequence {expected} is expected next, but {claim.seq} was sent.", headers=headers)


def _tail(case: _Case) -> Refusal | None:
    """Check `If-Match`: a writer that names the tail it has read appends after that tail or not at all."""
    if case.command.if_match is None or etag_names_tail(case.command.if_match, case.stream):
        return None
    headers = ((b"stream-next-offset", offset_at(case.stream, case.stream.tail)),)
    return Refusal(
        "PRECONDITION_FAILED",
        "The tail is not the one that If-Match names; read the new content first, then append.",
        headers=headers,
    )


def _stream_seq(case: _Case) -> Refusal | None:
    seq, last = case.command.seq, case.stream.last_seq
    if seq is None or last is None or seq > last:
        return None
    return Refusal("SEQUENCE_CONFLICT", "Stream-Seq must be greater than the last one accepted on this stream.")


def _content(case: _Case) -> Refusal | None:
    return case.command.content.flaw


_STEPS: tuple[Callable[[_Case], Appended | Refusal | None], ...] = (
    _shape,
    _known_key,
    _closed,
    _content_type,
    _producer_state,
    _tail,
    _stream_seq,
    _content,
)


def _commit(view: View, case: _Case, keep: Window) -> DecisionResult:
    command, stream, now = case.command, case.stream, case.now
    content, claim = command.content, command.producer
    tail = stream.tail + len(content.data)
    if content.data:
        stream = entered(stream, epoch_of(view))
        view.insert(CHUNK, new_chunk(stream, content.data, content.messages, now.ms))
    view.put(STREAM, _after(stream, command, tail, now))
    epoch = seq = None
    if claim is not None:
        epoch, seq = claim.epoch, claim.seq
        view.put(PRODUCER, ProducerRow(command.scope, claim.packed, stream.id, epoch, seq))
    status = 200 if claim is not None and content.data else 204
    if command.key is not None:
        end = keep.expires_at(now.ms)
        receipt = ReceiptRow(
            command.scope,
            command.key,
            stream.id,
            command.fingerprint,
            end,
            status,
            tail,
            int(command.closes),
            epoch,
            seq,
        )
        view.put(RECEIPT, receipt._replace(checksum=receipt_checksum(receipt)))
    answer = Appended(status, tail, command.closes, epoch, seq, False, True, epoch_at(stream, tail))
    signals: tuple[bytes, ...] = (stream.id,)
    if stream.subscribed and content.data:
        view.put(MOVED, MovedRow(stream.scope, stream.id, tail))
        signals = (stream.id, TOPIC)
    return DecisionResult(answer, signals, use(stream, now))


def _after(stream: StreamRow, command: Append, tail: int, now: Now) -> StreamRow:
    last_seq = stream.last_seq if command.seq is None else command.seq
    if not command.closes:
        # Written out for the common case: `_replace` takes more than twice as long for a row of this size.
        return tuple.__new__(StreamRow, (*stream[:9], now.ms, tail, stream.closed, last_seq, *stream[13:]))
    claim = command.producer
    closer = (None, None, None) if claim is None else (claim.id, claim.epoch, claim.seq)
    return stream._replace(
        tail=tail,
        last_seq=last_seq,
        updated_at=now.ms,
        closed=1,
        closer_id=closer[0],
        closer_epoch=closer[1],
        closer_seq=closer[2],
    )
