"""Scopes: an organization and each of its vaults have counters, chains and entities of their own; states of clients."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.ledger.rig import Ledger
from tests.ledger.words import Place, data, fresh, new_key, put, refused


def test_6_two_scopes_of_one_client_count_apart(ledger: Ledger) -> None:
    org, client = ledger.new_org(), fresh("client")
    vault, other = ledger.new_vault(org), ledger.new_vault(org)
    for place in (org, vault, other):
        assert ledger.commit(place, client, put("k", str(place.vault)), sequence=1).facts[1:] == (1, 1)
    assert ledger.commit(vault, client, put("k", b"2"), sequence=2).facts[1:] == (2, 2)
    assert [ledger.last(place, client) for place in (org, vault, other)] == [1, 2, 1]
    assert [ledger.height(place) for place in (org, vault, other)] == [1, 2, 1]
    assert [ledger.value(place, "k") for place in (org, vault, other)] == [b"0", b"2", str(other.vault).encode()]
    assert ledger.write(org, client, put("k"), sequence=3).last == 1


def test_two_clients_of_one_scope_count_apart(ledger: Ledger, place: Place) -> None:
    told = [ledger.commit(place, client, put("k"), sequence=1) for client in ("ann", "bob", "Ann", "ann ")]
    assert [(one.height, one.sequence) for one in told] == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_the_state_of_a_client(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    unknown = ledger.state(place, client)
    assert unknown["lastCommittedSequence"] == "0"
    assert "lastTxId" not in unknown
    earliest = int(time.time())
    for sequence in (1, 2):
        told = ledger.commit(place, client, put("k", str(sequence)), sequence=sequence)
        state = ledger.state(place, client)
        assert int(state["lastCommittedSequence"]) == sequence
        assert (data(state["lastTxId"]["id"]), int(state["lastBlockHeight"])) == (told.tx, told.height)
        assert earliest <= int(state["lastSeen"]) <= time.time() + 5
    before = ledger.state(place, client)
    ledger.write(place, client, put("k", b"1"), sequence=1)
    assert ledger.state(place, client) == before


CLIENTS = ["a/b", "ü ?#%", "..", "x" * 256, "é" * 256, "a+b", "state"]


@pytest.mark.parametrize("client", CLIENTS, ids=[f"name-{number}" for number in range(len(CLIENTS))])
def test_a_client_id_is_any_text(ledger: Ledger, place: Place, client: str) -> None:
    ledger.commit(place, client, put("k"), sequence=1)
    assert ledger.last(place, client) == 1
    assert ledger.transaction(place, 1)["clientId"] == {"id": client}


@pytest.mark.each_store
def test_a_state_shows_every_write_that_was_acknowledged(ledger: Ledger, place: Place) -> None:
    """Also on the other node, at once."""
    client = fresh("client")
    for sequence in range(1, 21):
        ledger.commit(place, client, put("k", str(sequence)), sequence=sequence)
        assert ledger.last(place, client) == sequence
        assert ledger.value(place, "k") == str(sequence).encode()


ASKS: dict[str, dict[str, Any]] = {
    "GetClientState": {"clientId": {"id": "c"}},
    "Read": {"key": "k"},
    "BatchRead": {"keys": ["k"]},
    "VerifiedRead": {"key": "k"},
    "HistoricalRead": {"key": "k", "atHeight": "1"},
    "GetBlock": {"height": "1"},
    "GetBlockRange": {"startHeight": "1", "endHeight": "2"},
    "GetTip": {},
    "ListEntities": {},
    "Write": {"clientId": {"id": "c"}, "sequence": "1", "operations": [put("k")]},
    "BatchWrite": {"clientId": {"id": "c"}, "sequence": "1", "operations": [{"operations": [put("k")]}]},
}


@pytest.mark.parametrize("rpc", ASKS)
def test_a_place_that_is_not_there(ledger: Ledger, rpc: str) -> None:
    org = ledger.new_org()
    foreign = ledger.new_place()
    with refused("NOT_FOUND", "3100"):
        ledger.ask(rpc, Place(4_711), **ASKS[rpc])
    with refused("NOT_FOUND", "3100"):
        ledger.ask(rpc, Place(4_711, foreign.vault), **ASKS[rpc])
    for vault in (4_711, foreign.vault):
        with refused("NOT_FOUND", "3101"):
            ledger.ask(rpc, Place(org.org, vault), **ASKS[rpc])


@pytest.mark.parametrize("rpc", ["ListRelationships", "ListResources"])
def test_lists_of_a_vault_that_is_not_there(ledger: Ledger, rpc: str) -> None:
    org = ledger.new_org()
    with refused("NOT_FOUND", "3101"):
        ledger.ask(rpc, Place(org.org, 4_711))
    with refused("NOT_FOUND", "3100"):
        ledger.ask(rpc, Place(4_711, 4_711))


def test_keys_are_found_again_in_each_scope(ledger: Ledger) -> None:
    org, client, key = ledger.new_org(), fresh("client"), new_key()
    vault = ledger.new_vault(org)
    first = {place: ledger.commit(place, client, put("k", b"1"), key=key) for place in (org, vault)}
    for place, told in first.items():
        ledger.check_replay(ledger.write(place, client, put("k", b"1"), key=key), told)
        assert ledger.write(place, client, put("k", b"2"), key=key).code == "IDEMPOTENCY_KEY_REUSED"
