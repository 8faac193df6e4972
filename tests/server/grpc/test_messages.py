"""Messages in the bytes of a call, however they are cut; and what is refused before it is kept."""

from __future__ import annotations

import gzip

import pytest

from semel.server.grpc.messages import FramedMessage, MessageBuffer, frame, unpack
from semel.server.grpc.metadata import GZIP, IDENTITY, GrpcError

MAX = 1_000
MESSAGES = [b"", b"a", b"b" * 300, b"c" * MAX]


@pytest.mark.parametrize("step", [1, 3, 7, 64, 5_000])
def test_messages_come_out_however_they_are_cut(step: int) -> None:
    data = b"".join(map(frame, MESSAGES))
    inbox = MessageBuffer(MAX)
    found = [one for start in range(0, len(data), step) for one in inbox.feed(data[start : start + step])]
    assert found == [FramedMessage(is_packed=False, content=message) for message in MESSAGES]
    assert inbox.is_empty


def test_a_message_alone_is_taken_whole() -> None:
    inbox = MessageBuffer(MAX)
    assert inbox.feed(frame(b"abc")) == [FramedMessage(is_packed=False, content=b"abc")]
    assert inbox.feed(frame(b"abc")[:-1]) == []
    assert not inbox.is_empty
    assert inbox.feed(b"c") == [FramedMessage(is_packed=False, content=b"abc")]


@pytest.mark.parametrize("size", [MAX + 1, 2**32 - 1])
@pytest.mark.parametrize("before", [b"", frame(b"first")], ids=["alone", "behind-another"])
def test_too_large_is_refused_by_its_announcement(size: int, before: bytes) -> None:
    with pytest.raises(GrpcError, match="at most 1000 bytes"):
        MessageBuffer(MAX).feed(before + b"\0" + size.to_bytes(4, "big"))


@pytest.mark.parametrize("flag", [2, 0x80, 0xFF])
def test_a_flag_that_means_nothing_is_refused(flag: int) -> None:
    with pytest.raises(GrpcError, match="flag"):
        MessageBuffer(MAX).feed(bytes((flag,)) + b"\0\0\0\x01x")


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"x" * MAX], ids=len)
def test_packed_and_unpacked(content: bytes) -> None:
    packed = gzip.compress(content)
    assert unpack(FramedMessage(is_packed=True, content=packed), GZIP, MAX) == content
    assert unpack(FramedMessage(is_packed=False, content=content), GZIP, MAX) == content


@pytest.mark.parametrize("size", [MAX + 1, 50_000_000])
def test_what_is_too_large_when_unpacked_is_refused(size: int) -> None:
    with pytest.raises(GrpcError, match="at most 1000 bytes"):
        unpack(FramedMessage(is_packed=True, content=gzip.compress(bytes(size), 1)), GZIP, MAX)


WHOLE = gzip.compress(b"abc")


@pytest.mark.parametrize(
    ("content", "encoding"),
    [(WHOLE[:-1], GZIP), (WHOLE + b"x", GZIP), (WHOLE + WHOLE, GZIP), (b"", GZIP), (b"abc", GZIP), (WHOLE, IDENTITY)],
    ids=["cut", "more", "twice", "empty", "not-gzip", "no-encoding"],
)
def test_what_cannot_be_unpacked_is_refused(content: bytes, encoding: bytes) -> None:
    with pytest.raises(GrpcError):
        unpack(FramedMessage(is_packed=True, content=content), encoding, MAX)


def test_only_what_is_worth_it_is_packed() -> None:
    assert frame(b"abc", is_packed=True) == frame(b"abc")
    large = b"abc" * 1_000
    sent = frame(large, is_packed=True)
    assert sent[0] == 1
    assert len(sent) < len(large)
    assert unpack(MessageBuffer(MAX).feed(sent)[0], GZIP, 10_000) == large
