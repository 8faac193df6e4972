"""What only HTTP has: its paths, the header of the key, statuses, proofs of blocks, and transactions by their id."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from tests.ledger import hashes
from tests.ledger.http_wire import ROOT, Route, place_path, problem_of
from tests.ledger.rig import Ledger, Site
from tests.ledger.words import Message, Place, Refused, data, fresh, new_key, put, refused, relate, text


@pytest.fixture
def ledger(site: Site) -> Ledger:
    """Over HTTP."""
    return site.ledger("http")


def path_of(place: Place) -> str:
    return place_path(place.fields)


def post(ledger: Ledger, place: Place, body: Message, key: str | None = None, what: str = "writes") -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return ledger.http.send(Route("POST", f"{path_of(place)}/{what}", body=body), headers)


def body_of(client: str, value: str = "1", **fields: Any) -> Message:
    return {"clientId": client, "operations": [put("k", value)]} | fields


# -- the key in the header --------------------------------------------------------------------------------------------

KEY = uuid.UUID("8e03978e-40d5-43dd-bc93-6894a57f9324")
SPELLINGS = {
    "uuid": str(KEY),
    "uuid-capitals": str(KEY).upper(),
    "uuid-in-quotes": f'"{KEY}"',
    "base64": text(KEY.bytes),
    "base64-in-quotes": f'"{text(KEY.bytes)}"',
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_header_may_replace_the_field(ledger: Ledger, place: Place, name: str) -> None:
    client = fresh("client")
    first = post(ledger, place, body_of(client), SPELLINGS[name])
    assert first.status_code == 200, first.text
    assert "Idempotency-Replayed" not in first.headers
    again = ledger.write(place, client, put("k", b"1"), key=KEY.bytes)
    assert (again.is_marked, again.success) == (True, first.json()["success"])


@pytest.mark.parametrize("name", SPELLINGS)
def test_both_and_the_same_are_one(ledger: Ledger, place: Place, name: str) -> None:
    body = body_of(fresh("client"), idempotencyKey=text(KEY.bytes))
    assert post(ledger, place, body, SPELLINGS[name]).status_code == 200


def test_both_and_different_are_refused(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    response = post(ledger, place, body_of(client, idempotencyKey=text(new_key())), str(KEY))
    assert response.status_code == 400
    assert problem_of(response).code == "INVALID_ARGUMENT"
    assert ledger.last(place, client) == 0


NO_KEYS = {
    "words": "order-7",
    "short": "8e03978e",
    "letter": "*",
    "quote": '"',
    "half-quoted": '"unfinished',
    "uuid-and-more": f"{KEY}0",
    "15-bytes": text(b"x" * 15),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_header_that_is_no_key(ledger: Ledger, place: Place, name: str) -> None:
    client = fresh("client")
    response = post(ledger, place, body_of(client, sequence=1), NO_KEYS[name])
    assert (response.status_code, problem_of(response).code) == (400, "INVALID_ARGUMENT")
    assert ledger.last(place, client) == 0


def test_two_headers_that_differ(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    url = f"{ledger.nodes[0].url}{path_of(place)}/writes"
    headers = [("Idempotency-Key", str(KEY)), ("Idempotency-Key", str(uuid.uuid4()))]
    response = httpx.post(url, json=body_of(client), headers=headers)
    assert (response.status_code, problem_of(response).code) == (400, "INVALID_ARGUMENT")
    assert ledger.last(place, client) == 0


def test_the_header_serves_batches_too(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    body = {"clientId": client, "operations": [{"operations": [put("a")]}, {"operations": [put("b")]}]}
    first = post(ledger, place, body, str(KEY), "batches")
    again = post(ledger, place, body, str(KEY), "batches")
    assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_write_and_its_replay(ledger: Ledger, place: Place) -> None:
    """The same body, marked: also with a sequence alone, and after another write."""
    client = fresh("client")
    first = post(ledger, place, body_of(client, sequence="1", includeTxProof=True))
    post(ledger, place, body_of(client, sequence="2"))
    again = post(ledger, place, body_of(client, sequence="1", includeTxProof=True))
    assert (first.status_code, again.status_code) == (200, 200)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()
    success = first.json()["success"]
    assert set(success) == {"txId", "blockHeight", "blockHeader", "txProof", "assignedSequence", "transaction"}


def test_no_replays_keep_the_error(ledger: Ledger, place: Place) -> None:
    """The same key under another sequence, another key for the same sequence: status 200, an error inside."""
    client = fresh("client")
    post(ledger, place, body_of(client, sequence=1), str(KEY))
    other_sequence = post(ledger, place, body_of(client, sequence=2), str(KEY))
    other_key = post(ledger, place, body_of(client, sequence=1), str(uuid.uuid4()))
    for response in (other_sequence, other_key):
        assert response.status_code == 200, response.text
        assert response.json()["error"]["code"] == "WRITE_ERROR_CODE_ALREADY_COMMITTED"
        assert response.headers["Idempotency-Replayed"] == "true"


def test_numbers_and_bytes_are_as_proto3_prints_them(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", put("k", b"\xfb\xff"), sequence=1)
    found = ledger.http.get(f"{path_of(place)}/entities/k")
    assert (found["value"], found["blockHeight"], found["version"]) == ("+/8=", "1", "1")
    header = ledger.http.get(f"{path_of(place)}/blocks/1")["block"]["header"]
    assert (header["height"], header["organization"], header["vault"]) == (
        "1",
        {"slug": str(place.org)},
        {"slug": str(place.vault)},
    )
    hashes.instant(header["timestamp"])
    assert isinstance(header["term"], str)


def test_what_is_absent_is_404(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", put("k"), sequence=1)
    unknown = new_key()
    for tail in (
        "entities/missing",
        "entities/missing?atHeight=1",
        "blocks/2",
        "blocks/2/proof",
        f"transactions/{unknown.hex()}",
    ):
        path, _, query = f"{path_of(place)}/{tail}".partition("?")
        response = ledger.http.send(Route("GET", path, {"atHeight": 1} if query else {}))
        assert response.status_code == 404, (tail, response.text)
        problem = problem_of(response)
        assert problem.code == "NOT_FOUND"
        assert problem.error_code not in ("3100", "3101")
    proved = ledger.http.send(Route("GET", f"{path_of(place)}/entities/missing", {"proof": "true"}))
    assert proved.status_code == 404
    assert proved.json()["stateProof"]["version"] == "0"


@pytest.mark.parametrize("path", ["relationships", "resources"])
def test_relationships_are_listed_in_vaults_only(ledger: Ledger, path: str) -> None:
    org = ledger.new_org()
    with pytest.raises(Refused) as caught:
        ledger.http.get(f"{path_of(org)}/{path}")
    assert caught.value.code in ("INVALID_ARGUMENT", "NOT_FOUND")


def test_keys_are_percent_decoded_once(ledger: Ledger, place: Place) -> None:
    keys = ["a/b", "a%2Fb", "a+b", "a b", "a?b", "batchRead", "é", "a:b"]
    ledger.commit(place, "c", *[put(key, key) for key in keys], sequence=1)
    assert [ledger.value(place, key) for key in keys] == [key.encode() for key in keys]


# -- proofs of blocks and transactions --------------------------------------------------------------------------------


@pytest.fixture
def written(ledger: Ledger, place: Place) -> list[bytes]:
    """The ids of five transactions."""
    client = fresh("client")
    told = [ledger.commit(place, client, put("k", str(number)), sequence=number) for number in range(1, 6)]
    return [one.tx for one in told if one.tx]


def check_inclusion(found: Message) -> None:
    leaf = hashes.transaction_hash(found["transaction"])
    assert data(found["txProof"]["leafHash"]["value"]) == leaf
    assert data(found["blockHeader"]["txMerkleRoot"]["value"]) == leaf


def test_the_proof_of_a_block(ledger: Ledger, place: Place, written: list[bytes]) -> None:
    found = ledger.http.get(f"{path_of(place)}/blocks/4/proof")
    check_inclusion(found)
    assert data(found["transaction"]["id"]["id"]) == written[3]
    assert found["blockHeader"] == ledger.block(place, 4)["header"]
    assert "chainProof" not in found
    chained = ledger.http.get(f"{path_of(place)}/blocks/4/proof", txId=written[3].hex(), trustedHeight=2)
    headers = chained["chainProof"]["headers"]
    assert [header["height"] for header in headers] == ["3", "4"]
    hashes.check_chain(headers, hashes.block_hash(ledger.block(place, 2)["header"]))


def test_the_proof_of_a_block_without_the_transaction(ledger: Ledger, place: Place, written: list[bytes]) -> None:
    with refused("NOT_FOUND"):
        ledger.http.get(f"{path_of(place)}/blocks/4/proof", txId=written[2].hex())


def test_a_transaction_by_its_id(ledger: Ledger, place: Place, written: list[bytes]) -> None:
    spelled = [written[1].hex(), str(uuid.UUID(bytes=written[1])), text(written[1]).replace("+", "-").replace("/", "_")]
    for name in (*spelled, spelled[-1].rstrip("=")):
        found = ledger.http.get(f"{path_of(place)}/transactions/{name}")
        check_inclusion(found)
        assert (found["blockHeight"], data(found["transaction"]["id"]["id"])) == ("2", written[1])
        assert found["transaction"] == ledger.transaction(place, 2)


def test_a_transaction_of_another_scope(ledger: Ledger, place: Place, written: list[bytes]) -> None:
    for other in (place.whole, ledger.new_vault(place), ledger.new_place()):
        with refused("NOT_FOUND"):
            ledger.http.get(f"{path_of(other)}/transactions/{written[0].hex()}")


# -- every path -------------------------------------------------------------------------------------------------------


def test_each_path_of_both_scopes(ledger: Ledger) -> None:
    org = ledger.new_org()
    vault = ledger.new_vault(org)
    for place in (org, vault):
        at = path_of(place)
        operations = [put("k", b"1")] + ([relate("doc:1", "viewer", "user:1")] if place.vault else [])
        posted = ledger.http.send(
            Route("POST", f"{at}/writes", body={"clientId": "c", "sequence": 1, "operations": operations})
        )
        assert posted.json()["success"]["blockHeight"] == "1"
        group = {"clientId": "c", "sequence": 2, "operations": [{"operations": [put("l", b"2")]}]}
        assert ledger.http.send(Route("POST", f"{at}/batches", body=group)).json()["success"]["blockHeight"] == "2"
        assert ledger.http.get(f"{at}/clients/c/state")["lastCommittedSequence"] == "2"
        assert ledger.http.get(f"{at}/entities/k", consistency="READ_CONSISTENCY_LINEARIZABLE")["value"] == "MQ=="
        assert ledger.http.get(f"{at}/entities/k", atHeight=1)["value"] == "MQ=="
        assert ledger.http.get(f"{at}/entities/k", proof="true")["stateProof"]["version"] == "1"
        many = ledger.http.send(Route("POST", f"{at}/entities:batchRead", body={"keys": ["l", "x"]})).json()
        assert [one["found"] for one in many["results"]] == [True, False]
        assert [one["key"] for one in ledger.http.get(f"{at}/entities", prefix="k")["entities"]] == ["k"]
        assert ledger.http.get(f"{at}/blocks/2")["block"]["header"]["height"] == "2"
        assert len(ledger.http.get(f"{at}/blocks", **{"from": 1, "to": 2})["blocks"]) == 2
        assert ledger.http.get(f"{at}/tip")["height"] == "2"
        assert ledger.http.get(f"{at}/blocks/1/proof")["blockHeader"]["height"] == "1"
    assert len(ledger.http.get(f"{path_of(vault)}/relationships", resource="doc:1")["relationships"]) == 1
    assert ledger.http.get(f"{path_of(vault)}/resources", type="doc")["resources"] == ["doc:1"]


@pytest.mark.parametrize("path", ["/ledger/v1", "/ledger/v1/", "/ledger/v1/nothing"])
def test_paths_that_lead_nowhere_are_refused_alike(ledger: Ledger, path: str) -> None:
    refusal = problem_of(ledger.http.send(Route("GET", path)))
    assert (refusal.code, refusal.message) == ("NOT_FOUND", "There is nothing at this path.")


def test_a_query_that_nobody_knows_is_harmless_or_refused(ledger: Ledger, place: Place) -> None:
    response = ledger.http.send(Route("GET", f"{path_of(place)}/tip", {"surprise": "1"}))
    assert response.status_code in (200, 400)


def test_the_root_lists_organizations(ledger: Ledger) -> None:
    org = ledger.new_org("a name of its own")
    found = ledger.http.get(f"{ROOT}/{org.org}")
    assert (found["name"], found["status"]) == ("a name of its own", "ORGANIZATION_STATUS_ACTIVE")
    listed, token = [], ""
    while True:
        page = ledger.http.get(ROOT, limit=50, pageToken=token)
        listed += page.get("organizations", [])
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert [one for one in listed if one["slug"] == found["slug"]] == [found]
