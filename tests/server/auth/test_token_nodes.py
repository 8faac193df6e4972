"""Two nodes over one PostgreSQL: a token that is created, rotated or revoked on one counts so on the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx
import pytest
from websockets.sync.client import connect

from semel.server.offline_tokens import OfflineTokens
from semel.server.settings_loader import make_settings
from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.server.auth.test_reload import last_words
from tests.server.auth.token_site import TokenAdmin, first_token, status

STREAM = "/v1/stream/there"


class Pair(NamedTuple):
    """Two nodes of one store; the administrator calls the first."""

    url: str
    site: TokenAdmin
    other: RunningServer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder, url = tmp_path_factory.mktemp("nodes"), fresh_url()
    env = {"SEMEL_STORE": url, "SEMEL_STREAMS_SSE_MAX_MS": "600000", "SEMEL_LOG_FORMAT": "json"}
    with Nodes(folder / "data", 2, env=env) as nodes:
        one, two = nodes.each
        assert [status(node, None) for node in (one, two)] == [200, 200]
        boss = first_token(url, str(folder))  # beside the running nodes
        for node in (one, two):
            eventually(lambda node=node: status(node, None) == 401, "the node needs a credential")  # type: ignore[misc]
            assert status(node, boss) == 200
        pair = Pair(url, TokenAdmin(one, boss), two)
        headers = {**boss.bearer, "Content-Type": "text/plain"}
        httpx.put(one.url + STREAM, headers=headers, content=b"x").raise_for_status()
        yield pair
        for node in (one, two):
            assert not any(secret in node.output.read_text() for secret in pair.site.secrets)


def test_a_token_of_one_node_counts_on_the_other_until_it_is_revoked_there(pair: Pair) -> None:
    token = pair.site.create("ada")
    eventually(lambda: status(pair.other, token) == 200, "the other node knows it")
    new = pair.site.rotate(token.id, overlap_ms=600_000)
    eventually(lambda: status(pair.other, new) == 200, "the other node knows the successor")
    assert status(pair.other, token) == 200
    TokenAdmin(pair.other, pair.site.boss).revoke(token.id)
    assert status(pair.other, token) == 401
    eventually(lambda: status(pair.site.server, token) == 401, "the first node has heard of it")


def test_what_is_open_on_the_other_node_ends_with_the_token(pair: Pair) -> None:
    token = pair.site.create("ada")
    eventually(lambda: status(pair.other, token) == 200, "the other node knows it")
    url, query = pair.other.url, {"live": "sse", "offset": "now"}
    hello = {"type": "connect", "protocol_version": "1.0", "msg_id": "1", "timestamp": 0}
    with (
        httpx.Client(timeout=60) as client,
        ThreadPoolExecutor(1) as pool,
        client.stream("GET", url + STREAM, params=query, headers=token.bearer) as answer,
        connect(f"{url.replace('http', 'ws')}/v1/events", additional_headers=token.bearer) as peer,
    ):
        assert answer.status_code == 200
        stream = pool.submit(lambda: b"".join(answer.iter_raw()))
        peer.send(json.dumps(hello | {"payload": {"token": token.secret, "client_id": "ada"}}))
        assert "connected" in str(peer.recv(30))
        pair.site.revoke(token.id)
        stream.result(30)
        assert "credential" in last_words(peer)


def test_a_revocation_without_a_server_is_heard_by_all_nodes(pair: Pair) -> None:
    token = pair.site.create("ada")
    eventually(lambda: status(pair.other, token) == 200, "the other node knows it")
    OfflineTokens(make_settings(store=pair.url)).revoke(token.id)
    for node in (pair.site.server, pair.other):
        eventually(lambda node=node: status(node, token) == 401, "the node has heard of it")  # type: ignore[misc]


def test_nodes_that_race_create_a_token_once(pair: Pair) -> None:
    body = {"name": "ada", "sha256": "ab" * 32}
    sites = [pair.site, TokenAdmin(pair.other, pair.site.boss)] * 4
    with ThreadPoolExecutor(len(sites)) as pool:
        answers = [one.json() for one in pool.map(lambda site: site.call("POST", "", body), sites)]
    assert len({one["id"] for one in answers}) == 1
    assert sum(one["changed"] for one in answers) == 1
