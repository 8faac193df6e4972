"""Whatever a real server proves stands up to the verifier, and no bit of it can be turned unnoticed.

A run turns a seventh of the bits, by the day.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from semel.client.proofs import (
    ProofError,
    Trusted,
    anchor_of,
    block_hash,
    verify_chain,
    verify_header_hash,
    verify_read,
    verify_relationship,
    verify_whole_block,
    verify_write,
)
from tests.client.flips import flips
from tests.client.part import is_tried
from tests.client.slow_ledger import Json
from tests.harness.server import RunningServer

SECONDS = 30.0
BLOCKS = 14
KEYS = [f"key:{number}" for number in (58, 500, 2083, 2394, 1, 2, 3)]
ABSENT = ["key:1479", "key:1665", "key:3176", "nobody"]
"""Of the same bucket as the first four, and of another one."""


class Scope:
    """A place on a server."""

    def __init__(self, http: httpx.Client, path: str) -> None:
        self.http = http
        self.path = path

    def get(self, path: str, status: int = 200, **query: Any) -> Json:
        answer = self.http.get(f"{self.path}/{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()  # type: ignore[no-any-return]

    def write(self, *operations: Json, **rest: Any) -> tuple[Json, Json]:
        """The request and the answer."""
        key = b64encode(secrets.token_bytes(16)).decode()
        request = {"clientId": "app", "idempotencyKey": key, "operations": list(operations), "includeTxProof": True}
        answer = self.http.post(f"{self.path}/writes", json={**request, **rest})
        assert answer.status_code == 200, answer.text
        return {**request, **rest}, answer.json()

    def proved(self, key: str, height: int) -> Json:
        """A verified read: its status tells whether the key is there, its body proves it."""
        params: dict[str, str | int] = {"proof": "true", "atHeight": height}
        answer = self.http.get(f"{self.path}/entities/{quote(key, safe='')}", params=params)
        assert answer.status_code == (200 if "value" in answer.json() else 404), answer.text
        return answer.json()  # type: ignore[no-any-return]

    def hash_at(self, height: int) -> bytes:
        """As the chain tells it elsewhere."""
        return block_hash(self.get(f"blocks/{height}")["block"]["header"])

    @property
    def tip(self) -> Trusted:
        found = self.get("tip")
        return Trusted(int(found["height"]), b64decode(found["blockHash"]["value"]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("proofs") / "data") as running:
        yield running


def new_scope(server: RunningServer, http: httpx.Client, *, has_vault: bool = True) -> Scope:
    root = f"{server.url}/ledger/v1/orgs"
    org = http.post(root, json={"name": "proofs"}).json()["slug"]["slug"]
    if not has_vault:
        return Scope(http, f"{root}/{org}")
    vault = http.post(f"{root}/{org}/vaults", json={}).json()["vault"]["slug"]
    return Scope(http, f"{root}/{org}/vaults/{vault}")


def set_of(key: str, value: str, **rest: Any) -> Json:
    return {"setEntity": {"key": key, "value": b64encode(value.encode()).decode(), **rest}}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=SECONDS) as client:
        yield client


class Written:
    """A chain with a model of the state after each block."""

    def __init__(self, scope: Scope, *, relates: bool) -> None:
        self.scope = scope
        self.answers: list[tuple[Json, Json]] = []
        self.states: list[dict[str, str]] = [{}]
        for number in range(1, BLOCKS + 1):
            state = dict(self.states[-1])
            added, removed = KEYS[number % len(KEYS)], KEYS[(number * 3 + 1) % len(KEYS)]
            state.pop(removed, None)
            state[added] = f"value {number}"
            relation = {"resource": f"doc:{number % 3}", "relation": "viewer", "subject": "user:1"}
            kind = "createRelationship" if number % 4 else "deleteRelationship"
            operations = [{"deleteEntity": {"key": removed}}, set_of(added, state[added])]
            self.answers.append(scope.write(*operations, *([{kind: relation}] if relates else [])))
            self.states.append(state)


@pytest.fixture(scope="module", params=["a vault", "an organization's own"])
def written(server: RunningServer, http: httpx.Client, request: pytest.FixtureRequest) -> Written:
    has_vault = request.param == "a vault"
    return Written(new_scope(server, http, has_vault=has_vault), relates=has_vault)


def test_every_write_is_proved(written: Written) -> None:
    tip = written.scope.tip
    for height, (request, answer) in enumerate(written.answers, start=1):
        hash_of = written.scope.hash_at(height)
        proved = verify_write(answer, request, Trusted(height, hash_of))
        assert proved.transaction.sequence == height
        assert proved.transaction.actor == b"client:anonymous"
        tx_id = proved.transaction.id.hex()
        assert verify_write(written.scope.get(f"transactions/{tx_id}"), request, Trusted(height, hash_of)) == proved
        assert verify_write(written.scope.get(f"blocks/{height}/proof"), request, Trusted(height, hash_of)) == proved
        assert verify_whole_block(written.scope.get(f"blocks/{height}"), Trusted(height, hash_of)) == [proved]
        chained = written.scope.get(f"blocks/{height}/proof", trustedHeight=1)
        assert verify_write(chained, request, Trusted(1, written.scope.hash_at(1))) == proved
        headers = written.scope.get(f"blocks/{tip.height}/proof", trustedHeight=height)["chainProof"].get("headers", [])
        verify_chain(tip.hash, tip.height, headers, chained["blockHeader"])
    assert tip.height == BLOCKS


def test_every_key_is_proved_at_every_height(written: Written) -> None:
    kinds = set()
    for height in range(1, BLOCKS + 1):
        trusted = Trusted(height, written.scope.hash_at(height))
        for key in KEYS + ABSENT:
            answer = written.scope.proved(key, height)
            proved = verify_read(answer, key, trusted)
            value = written.states[height].get(key)
            assert (None if proved.entry is None else proved.entry.value.decode()) == value
            is_witnessed = "bucketEntries" in answer["stateProof"]
            kinds.add((value is None, is_witnessed, "siblings" in answer["merkleProof"]))
    assert len(kinds) == 6, "present and absent, next to others, in their place, and alone"


def test_the_tip_and_the_watch_tell_the_same_hashes(written: Written) -> None:
    scope = written.scope
    verify_header_hash(scope.get(f"blocks/{BLOCKS}")["block"]["header"], scope.tip.hash)
    with scope.http.stream("GET", f"{scope.path}/blocks:watch", params={"from": 1}) as events:
        told = []
        for line in events.iter_lines():
            if line.startswith("data:"):
                told.append(httpx.Response(200, content=line[5:]).json())
            if len(told) == BLOCKS:
                break
    assert [b64decode(one["blockHash"]["value"]) for one in told] == [
        scope.hash_at(height) for height in range(1, BLOCKS + 1)
    ]


def unnoticed(answer: Json, verify: Any, skipped: frozenset[str] = frozenset()) -> list[str]:
    passed = []
    for number, change in enumerate(flips(answer, skipped)):
        if not is_tried(number):
            continue
        try:
            verify()
        except ProofError:
            continue
        passed.append(change)
    verify()
    return passed


def test_no_bit_of_a_write_can_be_turned(server: RunningServer, http: httpx.Client) -> None:
    scope = new_scope(server, http)
    operations = [
        set_of("a", "1", condition={"notExists": True}, expiresAt="4102444800"),
        {"deleteEntity": {"key": "b"}},
        {"createRelationship": {"resource": "doc:1", "relation": "owner", "subject": "user:1"}},
    ]
    request, answer = scope.write(*operations, sequence="1")
    assert unnoticed(answer, partial(verify_write, answer, request, scope.tip)) == []
    first = scope.tip
    for value in "23":
        scope.write(set_of("a", value))
    chained = scope.get("blocks/3/proof", trustedHeight=1)
    assert anchor_of(chained)[:2] == first[:2]
    assert unnoticed(chained, partial(verify_write, chained, None, first)) == []


def test_no_bit_of_a_read_can_be_turned(server: RunningServer, http: httpx.Client) -> None:
    """The roots of other buckets aside, of which every bit is turned in the tests without a server."""
    scope = new_scope(server, http)
    scope.write(*(set_of(key, key) for key in KEYS[:4]))
    for key in ("key:2083", "key:1665"):
        answer = scope.proved(key, 1)
        verify = partial(verify_read, answer, key, scope.tip)
        assert unnoticed(answer, verify, frozenset({"otherBucketRoots"})) == []


def test_e4_no_bit_of_a_relationship_and_of_its_absence_can_be_turned(
    server: RunningServer, http: httpx.Client
) -> None:
    """As a real server answers for it; the roots of other buckets aside, as above."""
    scope = new_scope(server, http)
    relations = [{"resource": f"doc:{number}", "relation": "viewer", "subject": "user:1"} for number in range(300)]
    scope.write(*({"createRelationship": one} for one in relations))
    scope.write({"deleteRelationship": relations[0]})
    for number, height, is_there in ((7, 2, True), (0, 1, True), (0, 2, False), (300, 2, False)):
        triple = (f"doc:{number}", "viewer", "user:1")
        query: dict[str, Any] = dict(zip(("resource", "relation", "subject"), triple, strict=True))
        answer = scope.get("relationships", **query, proof="true", atHeight=height)
        verify = partial(verify_relationship, answer, triple, Trusted(height, scope.hash_at(height)))
        assert (verify().entry is not None) == is_there
        assert unnoticed(answer, verify, frozenset({"otherBucketRoots"})) == []


def test_expired_and_large_values(server: RunningServer, http: httpx.Client) -> None:
    scope = new_scope(server, http, has_vault=False)
    large = "x" * 300_000
    scope.write(set_of("large", large), set_of("gone", "1", expiresAt="1"), set_of("é\u2028 /%", ""))
    proved = verify_read(scope.proved("large", 1), "large", scope.tip)
    assert proved.entry is not None
    assert len(proved.entry.value) == len(large)
    gone = verify_read(scope.proved("gone", 1), "gone", scope.tip)
    assert gone.is_expired
    odd = verify_read(scope.proved("é\u2028 /%", 1), "é\u2028 /%", scope.tip)
    assert odd.entry is not None
    assert odd.entry.value == b""


def test_proofs_outlive_a_crash(server: RunningServer, http: httpx.Client) -> None:
    scope = new_scope(server, http)
    _, first = scope.write(set_of("a", "1"))
    before = scope.tip
    server.kill()
    server.start()
    _, second = scope.write(set_of("a", "2"))
    assert int(second["success"]["blockHeader"]["term"]) > int(first["success"]["blockHeader"]["term"])
    verify_write(first, None, before)
    chained = scope.get("blocks/2/proof", trustedHeight=1)
    assert verify_write(chained, None, before).header.height == 2
    verify_read(scope.proved("a", 1), "a", before)


def test_compacted_blocks_keep_their_headers(server: RunningServer, http: httpx.Client) -> None:
    root = f"{server.url}/ledger/v1/orgs"
    org = http.post(root, json={"name": "short"}).json()["slug"]["slug"]
    policy = {"retentionPolicy": {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "2"}}
    vault = http.post(f"{root}/{org}/vaults", json=policy).json()["vault"]["slug"]
    scope = Scope(http, f"{root}/{org}/vaults/{vault}")
    for number in range(1, 7):
        scope.write(set_of("a", str(number)))
    chained = scope.get("blocks/6/proof", trustedHeight=1)
    verify_write(chained, None, Trusted(1, scope.hash_at(1)))
    bare = scope.get("blocks/1")["block"]
    with pytest.raises(ProofError, match="came without its transactions"):
        verify_whole_block({"block": bare}, Trusted(1, block_hash(bare["header"])))
    verify_chain(
        scope.tip.hash, 6, scope.get("blocks/6/proof", trustedHeight=1)["chainProof"]["headers"], bare["header"]
    )
