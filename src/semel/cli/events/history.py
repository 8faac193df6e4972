"""History with pagination: all pages of one run end at the position that was last at the start."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from semel.cli.connection import Connection
from semel.cli.events.members import members
from semel.cli.events.posting import PATH, SURFACE
from semel.cli.failures import not_semel
from semel.cli.streams.messages import messages
from semel.contracts.events.limits import MAX_COMMITTED_ID, PAGE_MOST


class Page(NamedTuple):
    """Events as the server gave them, one on each line."""

    events: list[str]
    next_since: int
    sync_to: int
    has_more: bool
    pruned_to: int
    """Events up to here are no longer kept."""


def pages(connection: Connection, partitions: Sequence[str], since: int, most: int | None) -> Iterator[Page]:
    """The events behind a position, at most `most`; None is all of them."""
    to: int | None = None
    while most is None or most > 0:
        page = _page(connection, partitions, since, PAGE_MOST if most is None else min(most, PAGE_MOST), to)
        yield page
        if not page.has_more:
            return
        if page.next_since <= since:
            raise not_semel(connection.address, SURFACE)
        since, to = page.next_since, page.sync_to
        most = None if most is None else most - len(page.events)


def last_position(connection: Connection, partitions: Sequence[str]) -> int:
    """The last committed_id of the whole log."""
    return _page(connection, partitions, MAX_COMMITTED_ID, 1, None).sync_to


def query_of(partitions: Sequence[str], since: int, **more: int) -> str:
    """The part of the path behind the question mark."""
    fields = [*(("partition", name) for name in partitions), ("since", since), *more.items()]
    return urlencode(fields, errors="surrogateescape")


def _page(connection: Connection, partitions: Sequence[str], since: int, limit: int, to: int | None) -> Page:
    bound = {} if to is None else {"to": to}
    body = connection.request("GET", f"{PATH}?{query_of(partitions, since, limit=limit, **bound)}").body
    try:
        facts = members(body.decode())
        events = list(messages(facts["events"].encode()))
        next_since, sync_to = int(facts["next_since_committed_id"]), int(facts["sync_to_committed_id"])
        has_more = json.loads(facts["has_more"]) is True
        return Page(events, next_since, sync_to, has_more, int(facts.get("pruned_to_committed_id", "0")))
    except (ValueError, KeyError) as error:
        raise not_semel(connection.address, SURFACE) from error
