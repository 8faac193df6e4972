"""Relationships of a subject are found by an index: the other relationships of the vault are not looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apsw
import httpx
import psycopg
import pytest

from semel.store.postgres.statements import PgStatements as PostgresStatements
from semel.store.protocol import AnyTable, Range
from semel.store.sqlite.statements import SqliteStatements
from semel.surfaces.ledger.tables import LEDGER_ENTITY, LEDGER_PAST
from tests.harness.postgres.shared import shared_cluster
from tests.ledger.rig import Site, SiteOf
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


def wanted(table: AnyTable, place: Place) -> Range:
    return Range(table, "subject", (place.org, place.vault, SUBJECT.encode()), LIMIT, (b"\0",), (b"\1",))


@pytest.mark.parametrize("table", [LEDGER_ENTITY, LEDGER_PAST], ids=repr)
def test_e3_sqlite_reads_relationships_of_a_subject_by_their_index(site_of: SiteOf, table: AnyTable) -> None:
    site = site_of("sqlite")
    place = site.ledger("http").new_place()
    made = SqliteStatements(table, table.name)
    connection = apsw.Connection(_file_of(site), flags=apsw.SQLITE_OPEN_READONLY)
    for sql, values in (made.scan(wanted(table, place)), made.distinct(wanted(table, place))):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        looks = [line for line in plan if table.name in line]
        assert looks
        assert all(f"INDEX {table.name}_subject (org=? AND vault=? AND subject=? AND key" in line for line in looks)
    connection.close()


def _file_of(site: Site) -> str:
    return str(next(path for path in site.nodes[0].data.iterdir() if path.read_bytes()[:6] == b"SQLite"))


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes_of(below)


def rows_read(node: dict[str, Any]) -> float:
    """Those that were of use and those that were not."""
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(each * node["Actual Loops"])


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-it-grew", "analyzed"])
def test_e3_postgres_reads_relationships_of_a_subject_by_their_index(site_of: SiteOf, *, analyzed: bool) -> None:
    site = site_of("postgres")
    place = crowded(site)
    schema = httpx.URL(site.url).params["schema"]
    with psycopg.connect(shared_cluster().url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(f"SET search_path = {schema}")
        for table in (LEDGER_ENTITY, LEDGER_PAST):
            if analyzed:
                connection.execute(f"ANALYZE {table.name}")
            made = PostgresStatements(table, table.name)
            values = [place.org, place.vault, SUBJECT.encode(), b"\0", b"\1"]
            scan, _ = made.scan(wanted(table, place))
            distinct, _ = made.distinct(wanted(table, place))
            for sql, given in ((scan, [*values, LIMIT]), (distinct, [*values, *values[:3], b"\1", LIMIT])):
                row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", given).fetchone()
                assert row is not None
                plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
                looks = [node for node in nodes_of(plan[0]["Plan"]) if node.get("Relation Name") == table.name]
                assert looks
                assert sum(map(rows_read, looks)) <= LIMIT, looks
