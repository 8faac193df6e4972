"""The list of subscriptions, in limited pages (pagination), of those that the caller may read.

A caller may read a subscription if it may read all that the subscription follows, and its wake stream. The list of a
caller with scopes is read in steps of `STEP` rows until the page is full, so that the place to continue from is always
an id that the caller may know. The setting `streams_subscriptions` limits the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import orjson

from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.keys import pack
from semel.server.auth.principals import Principal, Role
from semel.surfaces.streams.lists import SURFACE
from semel.surfaces.streams.subscriptions.reading import each_explicit_path, page_of
from semel.surfaces.streams.subscriptions.rules.globs import is_literal, literal_prefix
from semel.surfaces.streams.subscriptions.rules.phases import wait_ms
from semel.surfaces.streams.subscriptions.tables import SubscriptionRow
from semel.surfaces.streams.subscriptions.wire import summary

STEP = 8
"""Subscriptions that one read looks at for a caller with scopes."""


class _ListStep(NamedTuple):
    """The subscriptions that the caller may read, with the time to their next action; and the last one looked at."""

    rows: Sequence[tuple[SubscriptionRow, int | None]]
    last: bytes | None
    """None at the end."""


async def list_subscriptions(engine: Engine, principal: Principal, after: bytes, limit: int, most: int) -> bytes:
    """One page, as JSON. `most` is the greatest number of explicit streams of a subscription."""
    size = limit + 1 if principal.scopes is None else STEP
    found: list[tuple[SubscriptionRow, int | None]] = []
    last: bytes | None = pack(after) if after else b""
    while last is not None and len(found) <= limit:
        step = await engine.read(partial(_step, principal=principal, after=last, size=size, most=most))
        found += step.rows
        last = step.last
    page = found[:limit]
    more = page[-1][0].id.decode() if len(found) > limit else None
    return orjson.dumps({"subscriptions": [summary(row, wait) for row, wait in page], "after": more})


def _step(reading: Reading, principal: Principal, after: bytes, size: int, most: int) -> _ListStep:
    rows = page_of(reading, after, size)
    seen = [(row, wait_ms(row, reading.now)) for row in rows if _is_readable(reading, principal, row, most)]
    return _ListStep(seen, rows[-1].name if len(rows) == size else None)


def _is_readable(reading: Reading, principal: Principal, row: SubscriptionRow, most: int) -> bool:
    if principal.scopes is None:
        return True
    named = (one for one in (row.pattern, row.wake_stream) if one is not None)
    return reaches(principal, Role.READ, named) and reaches(
        principal, Role.READ, each_explicit_path(reading, row.life, most + 1)
    )


def reaches(principal: Principal, role: Role, names: Iterable[bytes]) -> bool:
    """Whether a principal may use all streams that these names and patterns stand for."""
    return principal.scopes is None or all(_each(principal, role, names))


def _each(principal: Principal, role: Role, names: Iterable[bytes]) -> Iterator[bool]:
    prefixes = [name for name, is_prefix in principal.reach(SURFACE) if is_prefix]
    for name in names:
        if is_literal(name):
            yield principal.may(role, SURFACE, name)
        else:
            yield any(literal_prefix(name).startswith(prefix) for prefix in prefixes)
