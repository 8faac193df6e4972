"""Watching blocks: from a height on, what is there and then what comes, in order, with no hole and no repeat."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.harness.together import at_once
from tests.ledger import calls, hashes
from tests.ledger.rig import Ledger, Site, SiteOf, request
from tests.ledger.words import PATIENCE_SECONDS, WIRES, Message, Place, data, fresh, new_key, put, refused

pytestmark = pytest.mark.each_store

NARROW = (("grpc.http2.lookahead_bytes", 2_000), ("grpc.http2.bdp_probe", 0))
"""Options of a connection that takes no more than a few announcements before they are read."""
BEHIND, SLOW_SECONDS = 1_024, 1.0
"""A consumer that is behind by more blocks than that, and has taken longer than that, is cut off."""
UNREAD = 512
"""More than a consumer that reads nothing can have been sent, or be about to be sent: a page, and what NARROW takes."""


def take(blocks: Iterator[Message], count: int) -> list[Message]:
    """The next announcements."""
    return list(itertools.islice(blocks, count))


def heights(announcements: list[Message]) -> list[int]:
    return [int(one["height"]) for one in announcements]


def fill(ledger: Ledger, place: Place, count: int) -> None:
    client = fresh("client")
    for number in range(count):
        ledger.commit(place, client, put("k", str(number)), key=new_key())


def test_what_is_there_comes_first_and_then_what_happens(ledger: Ledger, place: Place) -> None:
    fill(ledger, place, 3)
    with ledger.watch(place, 1) as blocks:
        assert heights(take(blocks, 3)) == [1, 2, 3]
        for height in (4, 5, 6):
            fill(ledger, place, 1)
            assert heights(take(blocks, 1)) == [height]


def test_an_announcement_is_of_its_block(ledger: Ledger, place: Place) -> None:
    fill(ledger, place, 2)
    with ledger.watch(place, 1) as blocks:
        announced = take(blocks, 2)
    for one in announced:
        header = ledger.block(place, int(one["height"]))["header"]
        assert data(one["blockHash"]["value"]) == hashes.block_hash(header)
        for name in ("organization", "vault", "stateRoot", "timestamp"):
            assert one[name] == header[name]


@pytest.mark.parametrize("start", [2, 3, 4, 6])
def test_it_begins_where_it_is_told_to(ledger: Ledger, place: Place, start: int) -> None:
    """Also at a block that is not there yet."""
    fill(ledger, place, 3)
    with ledger.watch(place, start) as blocks:
        if start <= 3:
            assert heights(take(blocks, 1)) == [start]
            start += 1
        fill(ledger, place, 4)
        assert heights(take(blocks, 7 - start + 1)) == list(range(start, 8))


def test_height_zero_is_refused(ledger: Ledger, place: Place) -> None:
    with refused("INVALID_ARGUMENT", "3203"), ledger.watch(place, 0) as blocks:
        next(blocks)


def test_places_that_are_not_there(ledger: Ledger, place: Place) -> None:
    with refused("NOT_FOUND", "3100"), ledger.watch(Place(4_711), 1) as blocks:
        next(blocks)
    with refused("NOT_FOUND", "3101"), ledger.watch(Place(place.org, 4_711), 1) as blocks:
        next(blocks)


def test_other_scopes_are_not_told(ledger: Ledger) -> None:
    org = ledger.new_org()
    vault, other = ledger.new_vault(org), ledger.new_vault(org)
    with ledger.watch(vault, 1) as blocks, ledger.watch(org, 1) as wide:
        for place in (other, org, vault):
            fill(ledger, place, 1)
        [mine], [whole] = take(blocks, 1), take(wide, 1)
        assert mine["vault"] == {"slug": str(vault.vault)}
        assert whole.get("vault", {"slug": "0"}) == {"slug": "0"}
        fill(ledger, vault, 1)
        assert heights(take(blocks, 1)) == [2]


def test_no_hole_and_no_repeat_under_concurrent_writes(ledger: Ledger, place: Place) -> None:
    """Watchers that come before, amid and after the writes all see the same."""
    writers, each = 4, 15
    total = writers * each
    seen: list[list[Message]] = []
    half = threading.Event()

    def write() -> None:
        fill(ledger, place, each // 2)
        half.set()
        fill(ledger, place, each - each // 2)

    def watch(when: threading.Event | None) -> None:
        if when:
            assert when.wait(PATIENCE_SECONDS)
        with ledger.watch(place, 1) as blocks:
            seen.append(take(blocks, total))

    at_once([write] * writers + [partial(watch, None)] * 2 + [partial(watch, half)] * 2)
    watch(None)
    assert [heights(announced) for announced in seen] == [list(range(1, total + 1))] * 5
    assert all(announced == seen[0] for announced in seen)
    headers = [
        block["header"] for block in ledger.ask("GetBlockRange", place, startHeight="1", endHeight="99")["blocks"]
    ]
    hashes.check_chain(headers)
    assert [data(one["blockHash"]["value"]) for one in seen[0]] == [hashes.block_hash(header) for header in headers]


def test_a_reconnect_goes_on_after_the_last(ledger: Ledger, place: Place) -> None:
    fill(ledger, place, 3)
    for height in (1, 2, 3, 4):
        with ledger.watch(place, height) as blocks:
            assert heights(take(blocks, 1)) == [height]
        fill(ledger, place, 1)


def test_a_browser_reconnects_by_the_last_event(site: Site) -> None:
    ledger = site.ledger("http")
    place = ledger.new_place()
    fill(ledger, place, 4)
    asked = place.fields | {"startHeight": "1"}
    with ledger.http.watch(asked, {"Last-Event-ID": "2"}) as blocks:
        assert heights(take(blocks, 2)) == [3, 4]


def test_a_compacted_vault_is_watched_by_its_headers(ledger: Ledger) -> None:
    place = ledger.new_vault(ledger.new_org(), keep=1)
    fill(ledger, place, 5)
    with ledger.watch(place, 1) as blocks:
        assert heights(take(blocks, 5)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("other", ["http", "grpc"])
def test_writes_of_one_wire_are_seen_on_the_other(site_of: SiteOf, other: str) -> None:
    """Over two nodes: the watcher may sit on one and the writer on the other."""
    site = site_of("postgres")
    ledger = site.ledger(other)
    place = ledger.new_place()
    for via in ("http", "grpc"):
        start = ledger.height(place) + 1
        with site.ledger(via).watch(place, start) as blocks:
            fill(ledger, place, 3)
            assert heights(take(blocks, 3)) == [start, start + 1, start + 2]


def test_a_consumer_that_is_far_behind_is_cut_off(site_of: SiteOf) -> None:
    """It has read what came without a hole, and goes on after that; whoever reads is not cut off, from however far."""
    ledger, depth, rounds = site_of("sqlite").ledger("grpc"), 64, (BEHIND + UNREAD) // 64
    place, client = ledger.new_place(), fresh("client")
    ledger.commit(place, client, put("k"), sequence=1)
    slow = calls.GrpcWire([ledger.nodes[0].grpc_port], options=NARROW)
    with slow.watch(place.fields | {"startHeight": "1"}) as blocks:
        assert heights(take(blocks, 1)) == [1]
        channel = ledger.grpc.channel()
        for start in range(2, 2 + depth * rounds, depth):
            asks = [request(place, client, [put("k")], sequence=number) for number in range(start, start + depth)]
            for call in [ledger.grpc.begin(channel, "Write", asked) for asked in asks]:
                call.result(PATIENCE_SECONDS)
        time.sleep(1.5 * SLOW_SECONDS)  # the writes alone may have taken less than a consumer may take
        seen = [1]
        with refused("UNAVAILABLE"):
            seen += (int(announced["height"]) for announced in blocks)
    slow.close()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) < depth * rounds
    total = 1 + depth * rounds
    for via in WIRES:
        with site_of("sqlite").ledger(via).watch(place, len(seen) + 1) as blocks:
            assert heights(take(blocks, total - len(seen))) == list(range(len(seen) + 1, total + 1))
