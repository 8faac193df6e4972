"""Entity tags (ETag): the version that a read returned, and the If-Match check of a writer.

`"<life>-<start>-<end>"`, with `-e<epoch>` behind it after a restore and `-c` when there will never be more: it changes
with each of them. A writer that sends one in `If-Match` has read up to `end`, whatever its read began with.
"""

from __future__ import annotations

from semel.contracts.streams.rules.epochs import epoch_at
from semel.contracts.streams.tables import StreamRow


def format_etag(stream: StreamRow, start: int, end: int, *, is_final: bool) -> bytes:
    """The entity tag of the content between two positions."""
    return b'"%s-%d-%s"' % (stream.id.hex().encode(), start, _end(stream, end, is_final))


def _end(stream: StreamRow, end: int, is_final: bool) -> bytes:
    epoch = epoch_at(stream, end)
    return b"%d%s%s" % (end, b"-e%d" % epoch if epoch else b"", b"-c" if is_final else b"")


def matches_any(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client has this already: lists, weak forms and `*` count."""
    tags = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return etag in tags or b"*" in tags


def names_tail(if_match: bytes, stream: StreamRow) -> bool:
    """Whether one of these tags is that of a read up to the tail, or `*`; weak forms never match."""
    return any(_names_tail(tag.strip(), stream) for tag in if_match.split(b","))


def _names_tail(tag: bytes, stream: StreamRow) -> bool:
    if tag == b"*":
        return True
    begins, ends = tag[:1] == b'"', tag[-1:] == b'"'
    life, _, rest = tag[1:-1].partition(b"-")
    start, _, end = rest.partition(b"-")
    is_read = begins and ends and start.isdigit() and life == stream.id.hex().encode()
    return is_read and end == _end(stream, stream.tail, bool(stream.closed))
