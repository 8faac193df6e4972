"""A list of now shows what is there, however much was there before: the past is not walked through for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.ledger.rig import Ledger, Site
from tests.ledger.words import WIRES, Answer, Message, Place, fresh, put, relate, remove, unrelate

GONE = 11_000
"""More keys than are looked at for one page."""
AT_ONCE = 1_000
MOST_PAGES = 100
LIVE = "user:99999"
TRIPLE = ("doc:1", "viewer", LIVE)


def come_and_go(ledger: Ledger, place: Place, names: Sequence[Sequence[str]], *actions: Callable[..., Message]) -> None:
    """Each action on all of these, in transactions of a thousand."""
    for action in actions:
        client = fresh("client")
        for first in range(0, len(names), AT_ONCE):
            operations = [action(*name) for name in names[first : first + AT_ONCE]]
            ledger.commit(place, client, *operations, sequence=first // AT_ONCE + 1)


def all_pages(ledger: Ledger, rpc: str, place: Place, **fields: str) -> Iterator[Answer]:
    token = ""
    for _ in range(MOST_PAGES):
        page = ledger.ask(rpc, place, limit=10, pageToken=token, **fields)
        yield page
        token = page.get("nextPageToken", "")
        if not token:
            return
    raise AssertionError("a list without an end")


def test_e2_a_list_of_now_shows_the_one_live_key_behind_eleven_thousand_deleted_ones(site: Site) -> None:
    http = site.ledger("http")
    place = http.new_place()
    http.commit(place, "c", put(LIVE), relate(*TRIPLE), sequence=1)
    names = [f"user:{number:05}" for number in range(GONE)]
    come_and_go(http, place, [(name,) for name in names], put, remove)
    come_and_go(http, place, [("doc:1", "viewer", name) for name in names], relate, unrelate)
    for ledger in map(site.ledger, WIRES):
        entities = ledger.ask("ListEntities", place, limit=10)
        assert [one["key"] for one in entities.get("entities", [])] == [LIVE]
        assert not entities.get("nextPageToken")
        for wanted in ({}, {"resource": "doc:1"}, {"relation": "viewer"}, {"subject": LIVE}):
            found = ledger.ask("ListRelationships", place, limit=10, **wanted)
            assert [one["subject"] for one in found.get("relationships", [])] == [LIVE]
            assert not found.get("nextPageToken")
        resources = ledger.ask("ListResources", place, resourceType="doc", limit=10)
        assert (resources.get("resources"), resources.get("nextPageToken", "")) == (["doc:1"], "")
        # An older height is read through the past, in as many pages as that takes.
        then = [
            one["key"]
            for page in all_pages(ledger, "ListEntities", place, atHeight="1")
            for one in page.get("entities", [])
        ]
        assert then == [LIVE]
