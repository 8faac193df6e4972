"""Relationships of a subject are found by an index: the other relationships of the vault are not looked at."""

from __future__ import annotations

import pytest

from tests.ledger.rig import Site
from tests.ledger.words import WIRES, Message, Place, fresh, relate, unrelate

OTHERS = 13_000
AT_ONCE = 1_000
LIMIT = 10
SUBJECT = "user:me"
MINE = ("doc:99999", "viewer", SUBJECT)
ENDED = ("doc:99998", "viewer", SUBJECT)


def crowded(site: Site) -> Place:
    """A vault with one relationship of the subject, and another that has ended, behind thousands of others'."""
    ledger = site.ledger("http")
    place, client = ledger.new_place(), fresh("client")
    others = [relate(f"doc:{number:05}", "viewer", f"user:{number}") for number in range(OTHERS)]
    batches = [others[first : first + AT_ONCE] for first in range(0, OTHERS, AT_ONCE)]
    # The past is crowded as well: of a table with a few rows PostgreSQL reads all, and is right to.
    batches.append([unrelate(f"doc:{number:05}", "viewer", f"user:{number}") for number in range(AT_ONCE)])
    for sequence, operations in enumerate([*batches, [relate(*MINE), relate(*ENDED)], [unrelate(*ENDED)]], 1):
        ledger.commit(place, client, *operations, sequence=sequence)
    return place


def triples(found: Message) -> list[tuple[str, str, str]]:
    return [(one["resource"], one["relation"], one["subject"]) for one in found.get("relationships", [])]


@pytest.mark.each_store
def test_e3_the_relationship_of_a_subject_is_on_the_first_page_whatever_else_is_in_the_vault(site: Site) -> None:
    place = crowded(site)
    for ledger in map(site.ledger, WIRES):
        tip = ledger.height(place)
        for filters in ({}, {"relation": "viewer"}, {"resource": MINE[0]}, {"resource": MINE[0], "relation": "viewer"}):
            found = ledger.ask("ListRelationships", place, subject=SUBJECT, limit=LIMIT, **filters)
            assert (triples(found), found.get("nextPageToken", "")) == ([MINE], "")
        for back, expected in ((1, [ENDED, MINE]), (2, [])):
            found = ledger.ask("ListRelationships", place, subject=SUBJECT, limit=LIMIT, atHeight=str(tip - back))
            assert (triples(found), found.get("nextPageToken", "")) == (expected, "")
        assert triples(ledger.ask("ListRelationships", place, subject=SUBJECT, relation="editor")) == []
        assert triples(ledger.ask("ListRelationships", place, subject="user:nobody")) == []
