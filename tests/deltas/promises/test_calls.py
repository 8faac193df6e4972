"""What the host of deltas does around a call: heads without bodies, bodies that are too large, listings by reach."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from semel.kernel.hashes import columns_text, delta_id, json_text
from tests.harness.server import HOST, RunningServer

ROOT, LIMITED = "root-of-all", "only-some"
LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("host")
    tokens = folder / "tokens.toml"
    told = [("root", ROOT, ""), ("limited", LIMITED, 'scopes = ["deltas:team-*"]\n')]
    tokens.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{sha256(token.encode()).hexdigest()}"\nroles = ["admin"]\n{scopes}'
            for name, token, scopes in told
        )
    )
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKENS": str(tokens), "SEMEL_DELTAS_MAX_BODY_BYTES": str(LIMIT)}
    with RunningServer(folder / "data", env=env) as running:
        yield running


def bearer(token: str = ROOT) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def insert(client: str, row: str, hlc: int) -> dict[str, Any]:
    columns = columns_text(['{"column":"title","value":"x"}'])
    name = delta_id(json_text(client), columns, hlc, json_text(row), "todos").hex()
    told = {"op": "INSERT", "table": "todos", "rowId": row, "clientId": client, "hlc": str(hlc), "deltaId": name}
    return told | {"columns": [{"column": "title", "value": "x"}]}


def push(server: RunningServer, gateway: str, client: str, *deltas: dict[str, Any]) -> dict[str, Any]:
    body = {"clientId": client, "deltas": deltas}
    answer = httpx.post(f"{server.url}/v1/sync/{gateway}/push", json=body, headers=bearer())
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_a_head_tells_nothing_and_so_nothing_is_remembered_as_told(server: RunningServer) -> None:
    pull = f"{server.url}/v1/sync/heads/pull"
    push(server, "heads", "b", insert("b", "of-b", 1))
    for path in (pull, f"{server.url}/v1/sync/heads/checkpoint"):
        head = httpx.head(path, params={"since": "0", "clientId": "a"}, headers=bearer())
        assert (head.status_code, head.content) == (200, b"")
    # The cursor of a push leads behind what the client was told, which is nothing so far.
    cursor = push(server, "heads", "a", insert("a", "of-a", 2))["serverHlc"]
    page = httpx.get(pull, params={"since": cursor, "clientId": "a"}, headers=bearer()).json()
    told = [(entry["op"], entry["rowId"]) for entry in page["deltas"]]
    assert told == [("DELETE", "of-b"), ("INSERT", "of-b")], "the row comes, behind a DELETE in case it had come before"


def test_a_head_is_judged_like_the_call_itself(server: RunningServer) -> None:
    assert httpx.head(f"{server.url}/v1/sync/heads/pull", headers=bearer()).status_code == 400
    assert httpx.head(f"{server.url}/v1/sync/heads/pull").status_code == 401
    assert httpx.head(f"{server.url}/v1/sync/heads/push", headers=bearer()).status_code == 404


@pytest.mark.parametrize("pieces", [1, 2, 64], ids=["just above", "twice", "far above"])
def test_one_who_sends_all_before_it_listens_gets_its_answer(server: RunningServer, pieces: int) -> None:
    line = http.client.HTTPConnection(HOST, server.port, timeout=60)
    chunks = (b" " * LIMIT for _ in range(pieces))
    body = (piece for source in (chunks, iter([b"{}"])) for piece in source)
    line.request("POST", "/v1/sync/large/push", body, bearer() | {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    answer = line.getresponse()
    told = json.loads(answer.read())
    line.close()
    assert (answer.status, told["code"]) == (413, "VALIDATION_ERROR")
    assert answer.headers["Connection"] == "close"


def names(server: RunningServer, token: str, **query: str) -> tuple[list[str], bool]:
    answer = httpx.get(f"{server.url}/v1/admin/gateways", params=query, headers=bearer(token)).json()
    return answer["gateways"], answer["hasMore"]


def test_gateways_are_listed_to_those_who_administer_them(server: RunningServer) -> None:
    for gateway in ("team-2", "other", "team-1", "team-3"):
        push(server, gateway, "a")
    assert names(server, LIMITED) == (["team-1", "team-2", "team-3"], False)
    assert set(names(server, ROOT)[0]) >= {"other", "team-1", "team-2", "team-3"}
    assert names(server, LIMITED, limit="2") == (["team-1", "team-2"], True)
    assert names(server, LIMITED, limit="2", after="team-2") == (["team-3"], False)
