"""Patterns of stream names: `*` is one segment, `**` is any number of segments, also none.

A wildcard stands for whole segments. A pattern has at most MAX_SEGMENTS segments and MAX_DEEP times `**`, and a match
takes one step for each segment of the pattern, however many the name has: a new stream is compared with the patterns of
all subscriptions on the event loop.
"""

from __future__ import annotations

from functools import lru_cache

MAX_SEGMENTS = 32
MAX_DEEP = 2
ANY, DEEP = b"*", b"**"


class GlobError(ValueError):
    """The pattern cannot be used; the message says why in one sentence."""


def check_pattern(pattern: bytes) -> None:
    """Raise `GlobError` for a pattern that is not accepted."""
    segments = pattern.split(b"/")
    if len(segments) > MAX_SEGMENTS:
        raise GlobError(f"The pattern has {len(segments)} segments; at most {MAX_SEGMENTS} are allowed.")
    if segments.count(DEEP) > MAX_DEEP:
        raise GlobError(f"The pattern has ** more than {MAX_DEEP} times; use it at most {MAX_DEEP} times.")
    if any(ANY in segment and segment not in (ANY, DEEP) for segment in segments):
        raise GlobError("A wildcard must be a whole segment of the pattern: events/* or events/**.")


@lru_cache(4_096)
def _segments(pattern: bytes) -> tuple[bytes, ...]:
    return tuple(pattern.split(b"/"))


@lru_cache(4_096)
def _groups(pattern: bytes) -> tuple[tuple[bytes, ...], ...]:
    """The segments of a pattern between its `**`."""
    groups: list[tuple[bytes, ...]] = [()]
    for segment in _segments(pattern):
        if segment == DEEP:
            groups.append(())
        else:
            groups[-1] += (segment,)
    return tuple(groups)


@lru_cache(16)
def _places(path: bytes) -> tuple[int, dict[bytes, int]]:
    """The number of segments of a name, and the places of each as the bits of a number: one name is compared with many
    patterns.
    """
    segments = path.split(b"/")
    places: dict[bytes, int] = {}
    for place, segment in enumerate(segments):
        places[segment] = places.get(segment, 0) | 1 << place
    return len(segments), places


def _fitting(group: tuple[bytes, ...], places: dict[bytes, int]) -> int:
    """The places at which a group begins, as bits; beyond the end of the name a wildcard fits everywhere."""
    found = -1
    for place, segment in enumerate(group):
        if segment != ANY:
            found &= places.get(segment, 0) >> place
    return found


def matches(pattern: bytes, path: bytes) -> bool:
    """Whether a name matches a pattern."""
    first, *others = _groups(pattern)
    length, places = _places(path)
    if not others:
        return length == len(first) and bool(_fitting(first, places) & 1)
    *middle, last = others
    start, end = len(first), length - len(last)
    if start > end or not _fitting(first, places) & _fitting(last, places) >> end & 1:
        return False
    for group in middle:
        found = _fitting(group, places) >> start
        start += (found & -found).bit_length() - 1 + len(group)
        if not found or start > end:
            return False
    return True


def first_segment(pattern: bytes) -> bytes:
    """The first segment, if all matching names begin with it; otherwise empty."""
    first = _segments(pattern)[0]
    return b"" if first in (ANY, DEEP) else first


def literal_prefix(pattern: bytes) -> bytes:
    """The bytes with which every matching name begins."""
    kept: list[bytes] = []
    segments = _segments(pattern)
    for place, segment in enumerate(segments):
        if segment in (ANY, DEEP):
            # `**` may be no segment at all: then the slash before it is not in the name.
            has_slash = segment == ANY or place + 1 < len(segments)
            return b"/".join(kept) + (b"/" if kept and has_slash else b"")
        kept.append(segment)
    return pattern


def is_literal(pattern: bytes) -> bool:
    """Whether the pattern is one name."""
    return not any(segment in (ANY, DEEP) for segment in _segments(pattern))
