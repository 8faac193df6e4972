"""Frames of event streams: equal to the plain way of making them, and made once for all readers of a page."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.surfaces.streams.live import CACHE_BYTES, FrameCache
from semel.surfaces.streams.reading import StreamPage
from semel.surfaces.streams.tables import StreamRow
from semel.surfaces.streams.wire import responses


def page_of(content: bytes, life: bytes = b"life", start: int = 0) -> StreamPage:
    end = start + len(content)
    row = StreamRow(b"s", b"s", life, b"text/plain", None, None, None, 0, 0, 0, end, 0, None, None, None, None)
    return StreamPage(row, start, end, (content,))


def plain(content: bytes, content_type: bytes) -> bytes:
    """The whole event at once, line by line."""
    payload = content if content_type.startswith(b"text/") else b64encode(content)
    lines = re.split(rb"\r\n|\r|\n", payload)
    return b"event: data\n" + b"".join(b"data:%s\n" % line for line in lines) + b"\n"


@given(content=st.binary(max_size=40) | st.text("\r\na", max_size=40).map(str.encode), triple=st.integers(1, 4))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("content_type", [b"text/plain", b"application/octet-stream"])
def test_a1_the_parts_of_an_event_are_the_event(content_type: bytes, content: bytes, triple: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "PART_BYTES", 3 * triple)
        parts = [responses.event_part(content, content_type, number) for number in range(responses.parts_of(content))]
    assert b"".join(parts) == plain(content, content_type)


def test_a1_frames_that_are_kept_are_bounded_and_those_dropped_are_made_again() -> None:
    async def scenario() -> None:
        cache = FrameCache()
        first = page_of(b"\n" * responses.PART_BYTES)
        for start in range(2 * CACHE_BYTES // (6 * responses.PART_BYTES)):
            page = page_of(b"\n" * responses.PART_BYTES, start=start)
            assert await cache.part(await cache.frame(page), 0) == plain(page.pieces[0], b"text/plain")
        assert 0 < sum(map(len, cache._parts.values())) == cache._bytes <= CACHE_BYTES
        assert await cache.part(await cache.frame(first), 0) == plain(first.pieces[0], b"text/plain")

    asyncio.run(scenario())
