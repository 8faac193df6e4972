"""What a page of a list costs on PostgreSQL: few statements, however many items it has.

A server of the tests' own writes down every statement that it is sent. A page is one transaction that only reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer
from tests.harness.together import check_log
from tests.ledger.rig import Ledger, Site
from tests.ledger.words import WIRES, Message, Place, fresh, put, relate, remove, unrelate

MOST_STATEMENTS = 20
ITEMS = 1_000
LARGE = 5_000
"""Bytes of a value that stands in a row of its own."""
LOGGED = re.compile(r"^<(\d+)> LOG:  (?:statement|execute [^:]*): (.*)")


class Statements:
    """The transactions that read, statement by statement, as the database wrote them down."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = cluster.log
        self._seen = 0

    @contextmanager
    def of_page(self, table: str) -> Iterator[list[str]]:
        """The statements of every reading of this table inside: those of a page, and of a chore that came between."""
        self._seen = len(self._log.read_bytes())
        found: list[str] = []
        yield found
        for one in self._readings():
            if any(f'"{table}"' in statement for statement in one):
                found += one
        assert found, "nothing was read"

    def _readings(self) -> Iterator[list[str]]:
        open_ones: dict[str, list[str]] = {}
        for line in self._log.read_bytes()[self._seen :].decode(errors="replace").splitlines():
            found = LOGGED.match(line)
            if found is None:
                continue
            process, statement = found.groups()
            if statement.endswith("READ ONLY"):
                open_ones[process] = []
            if process in open_ones:
                open_ones[process].append(statement)
                if statement == "COMMIT":
                    yield open_ones.pop(process)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Statements]]:
    folder = tmp_path_factory.mktemp("statements")
    with Cluster({"log_statement": "all", "log_line_prefix": "<%p> "}) as cluster:
        server = RunningServer(Path(folder) / "data", env={"SEMEL_STORE": cluster.url}, grpc=True)
        with server:
            site = Site(server)
            yield site, Statements(cluster)
            site.close()
        check_log(server)


def commit_many(ledger: Ledger, place: Place, *operations: Message) -> None:
    client = fresh("client")
    for first in range(0, len(operations), 400):
        ledger.commit(place, client, *operations[first : first + 400], sequence=first // 400 + 1)


def triples(number: int) -> Iterator[tuple[str, str, str]]:
    return ((f"doc:{one:04}", "viewer", "user:1") for one in range(number))


@pytest.fixture(scope="module")
def filled(logged: tuple[Site, Statements]) -> tuple[Site, Statements, Place, int]:
    """A thousand and more of everything at a height, of which half are then replaced or removed."""
    site, statements = logged
    ledger = site.ledger("http")
    place = ledger.new_place()
    names = [f"key:{number:04}" for number in range(ITEMS + 50)]
    commit_many(ledger, place, *[put(name, b"before") for name in names])
    commit_many(ledger, place, *[put(f"large:{number:03}", b"x" * LARGE) for number in range(450)])
    commit_many(ledger, place, *[relate(*one) for one in triples(ITEMS + 50)])
    height = ledger.height(place)
    commit_many(ledger, place, *[put(name, b"after") for name in names[::2]])
    commit_many(ledger, place, *[remove(name) for name in names[1::40]])
    commit_many(ledger, place, *[put(f"large:{number:03}", b"y" * LARGE) for number in range(0, 450, 2)])
    commit_many(ledger, place, *[unrelate(*one) for one in list(triples(ITEMS + 50))[1::40]])
    return site, statements, place, height


LISTS: dict[str, tuple[str, str, Message, int]] = {
    "entities": ("ListEntities", "entities", {"keyPrefix": "key:"}, ITEMS),
    "large-entities": ("ListEntities", "entities", {"keyPrefix": "large:"}, 400),
    "relationships": ("ListRelationships", "relationships", {}, ITEMS),
    "relationships-of-a-subject": ("ListRelationships", "relationships", {"subject": "user:1"}, ITEMS),
    "resources": ("ListResources", "resources", {"resourceType": "doc"}, ITEMS),
}


@pytest.mark.parametrize("when", ["now", "then"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", LISTS)
def test_e1_a_page_of_a_list_costs_at_most_twenty_statements(
    filled: tuple[Site, Statements, Place, int], name: str, wire: str, when: str
) -> None:
    """The first page, and the one behind it, which is read at the first one's height."""
    site, statements, place, height = filled
    ledger = site.ledger(wire)
    rpc, member, wanted, expected = LISTS[name]
    at: dict[str, Any] = {"atHeight": str(height)} if when == "then" else {}
    with statements.of_page("ledger_place") as page:
        first = ledger.ask(rpc, place, limit=ITEMS, **wanted, **at)
    assert len(first[member]) >= expected
    assert len(page) <= MOST_STATEMENTS, page
    ledger.commit(place, fresh("client"), put("other"), sequence=1)
    with statements.of_page("ledger_place") as page:
        ledger.ask(rpc, place, limit=ITEMS, pageToken=first["nextPageToken"], **wanted, **at)
    assert len(page) <= MOST_STATEMENTS, page
