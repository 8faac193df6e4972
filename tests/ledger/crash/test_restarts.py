"""What outlives a kill besides the rows of the rule table: chains, terms, page tokens, settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from urllib.parse import parse_qs, urlsplit

import apsw
import psycopg
import pytest
from psycopg import sql

from tests.harness.postgres.shared import shared_cluster
from tests.ledger import hashes
from tests.ledger.rig import Ledger, Site, serving
from tests.ledger.words import LARGEST, WIRES, Message, Place, fresh, new_key, put, refused, relate

NODE = "the node"


class Before:
    """What was done, and told, before the kill."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.client, self.key = fresh("client"), new_key()
        self.place = ledger.new_place()
        self.first = ledger.commit(self.place, self.client, *OPERATIONS, sequence=1, key=self.key, proofs=True)
        self.bare = ledger.commit(self.place, self.client, put("b", b"2"), sequence=2)
        self.batch = ledger.batch(self.place, self.client, [put("c")], [put("d")], sequence=3)
        self.told = self.ask()
        self.token = ledger.ask("ListEntities", self.place, limit=1)["nextPageToken"]
        self.org = ledger.new_org()
        ledger.set_org(self.org, ttlSeconds=77, evictionInterval=5, fence=True)
        self.creation = (("idempotency-key", fresh("creation")),)
        self.made = dict(ledger.wire.ask("CreateVault", self.org.fields, self.creation))

    def ask(self) -> list[Message]:
        """Everything that can be asked about the place."""
        ledger, place = self.ledger, self.place
        return [
            dict(ledger.ask("GetTip", place)),
            dict(ledger.ask("GetBlockRange", place, startHeight="1", endHeight="9")),
            dict(ledger.state(place, self.client)),
            dict(ledger.ask("ListEntities", place)),
            dict(ledger.ask("ListRelationships", place)),
            dict(ledger.ask("VerifiedRead", place, key="a", atHeight="1")),
            dict(ledger.ask("GetVault", place)),
            dict(ledger.ask("GetOrganization", slug={"slug": str(place.org)})),
        ]


OPERATIONS = [put("a", b"1", not_exists=True), relate("doc:1", "viewer", "user:1")]


class Spent:
    """A client that has used up its sequences. Nobody can write that often, so the number is put into the store."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.place, self.client, self.key = ledger.new_place(), fresh("client"), new_key()
        self.first = ledger.commit(self.place, self.client, put("a"), key=self.key)

    def spend(self, site: Site) -> None:
        """Raise its last sequence to the largest, while no server is running."""
        given = (LARGEST.to_bytes(8, "big"), self.client.encode())
        if site.url:
            schema = parse_qs(urlsplit(site.url).query)["schema"][0]
            change = sql.SQL('UPDATE {} SET "last" = %s WHERE "client" = %s')
            with psycopg.connect(shared_cluster().url) as connection:
                done = connection.execute(change.format(sql.Identifier(schema, "ledger_stream")), given)
                assert done.rowcount == 1
        else:
            [node] = site.nodes
            database = apsw.Connection(str(node.data / "semel.db"))
            database.execute('UPDATE "ledger_stream" SET "last" = ? WHERE "client" = ?', given)
            assert database.changes() == 1
            database.close()


class Risen:
    """A site that was killed and started again."""

    def __init__(self, store: str, site: Site) -> None:
        self.store = store
        self.before = {via: Before(site.ledger(via)) for via in WIRES}
        self.spent = {via: Spent(site.ledger(via)) for via in WIRES}
        site.crash(partial(self._spend, site))

    def _spend(self, site: Site) -> None:
        for spent in self.spent.values():
            spent.spend(site)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def risen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Risen]:
    store: str = request.param
    with serving(tmp_path_factory.mktemp("restarts") / "data", store, nodes=1, LEDGER_NODE_ID=NODE) as site:
        yield Risen(store, site)


@pytest.fixture(params=WIRES)
def before(request: pytest.FixtureRequest, risen: Risen) -> Before:
    return risen.before[request.param]


def test_everything_is_told_as_before(before: Before) -> None:
    assert before.ask() == before.told


def test_a_retry_that_asks_for_no_proofs_gets_those_of_the_first_answer(before: Before) -> None:
    """Twice: over gRPC the first time from the log alone, the second time from what this process has told."""
    ledger, first = before.ledger, before.first
    assert {"blockHeader", "txProof", "transaction"} <= first.success.keys()
    assert not {"blockHeader", "txProof", "transaction"} & before.bare.success.keys()
    for _ in range(2):
        again = ledger.write(before.place, before.client, *OPERATIONS, sequence=1, key=before.key)
        ledger.check_replay(again, first)
        bare = ledger.write(before.place, before.client, put("b", b"2"), sequence=2)
        ledger.check_replay(bare, before.bare)


def test_a_retry_gets_the_first_answer_with_its_proofs(before: Before) -> None:
    """Also one that asks for proofs only now, and one without a key."""
    ledger, place, client = before.ledger, before.place, before.client
    again = ledger.write(place, client, *OPERATIONS, sequence=1, key=before.key, proofs=True)
    ledger.check_replay(again, before.first)
    proved = ledger.write(place, client, put("b", b"2"), sequence=2, proofs=True)
    success = proved.body if proved.kind == "success" else proved.error["original"]
    assert proved.facts == before.bare.facts
    assert success["transaction"] == ledger.transaction(place, 2)
    ledger.check_replay(ledger.batch(place, client, [put("c")], [put("d")], sequence=3), before.batch)


def test_a_token_of_a_list_is_still_good(before: Before) -> None:
    rest = before.ledger.ask("ListEntities", before.place, limit=9, pageToken=before.token)["entities"]
    assert [one["key"] for one in rest] == ["b", "c", "d"]


def test_settings_and_creations_are_remembered(before: Before) -> None:
    ledger = before.ledger
    found = ledger.ask("GetOrganization", slug={"slug": str(before.org.org)})
    assert (found["ttlSeconds"], found["evictionInterval"], found["fence"]) == ("77", "5", True)
    again = ledger.wire.ask("CreateVault", before.org.fields, before.creation)
    assert (dict(again), again.is_replay) == (before.made, True)


def test_a_restart_raises_the_term_and_keeps_the_chain(before: Before, risen: Risen) -> None:
    """On SQLite; the nodes of a PostgreSQL share one term, which a failover raises."""
    ledger = before.ledger
    place = Place(before.org.org, int(before.made["vault"]["slug"]))
    ledger.commit(before.place, fresh("client"), put("z"), sequence=1)
    blocks = ledger.ask("GetBlockRange", before.place, startHeight="1", endHeight="9")["blocks"]
    for block in blocks:
        hashes.check_block(block)
        assert block["header"]["leaderId"] == {"id": NODE}
    hashes.check_chain([block["header"] for block in blocks])
    terms = [int(block["header"]["term"]) for block in blocks]
    assert terms[0] >= 1
    if risen.store == "sqlite":
        assert terms[-1] > terms[-2] == terms[0]
    assert ledger.height(place) == 0


@pytest.mark.parametrize("via", WIRES)
def test_r0c_a_client_without_sequences_left_must_take_another_id(risen: Risen, via: str) -> None:
    """What it has done is still known, however often it is asked."""
    spent = risen.spent[via]
    ledger, place, client = spent.ledger, spent.place, spent.client
    for _ in range(2):
        with refused("FAILED_PRECONDITION") as caught:
            ledger.write(place, client, put("b"), key=new_key())
        assert "client" in caught.value.message
        ledger.check_replay(ledger.write(place, client, put("a"), key=spent.key), spent.first)
        assert ledger.write(place, client, put("b"), key=spent.key).code == "IDEMPOTENCY_KEY_REUSED"
        assert (ledger.last(place, client), ledger.height(place)) == (LARGEST, 1)
    ledger.commit(place, fresh("rotated"), put("b"), key=new_key(), sequence=1)
