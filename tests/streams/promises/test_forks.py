"""Forks: what the official suite does not ask about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.tokens import token_file
from tests.streams.forks.orphans import faults_of, rows_of
from tests.streams.wire import serving

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
START = "0000000000000000_0000000000000000"


class ForkCalls:
    """A few calls by names instead of paths."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def at(self, method: str, name: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        return self.http.request(method, f"/v1/stream/{name}", headers=headers, **more)

    def put(self, name: str, body: str = "", **headers: str) -> httpx.Response:
        return self.at("PUT", name, _named(headers), content=body)

    def fork(self, source: str, name: str, body: str = "", **headers: str) -> httpx.Response:
        return self.put(name, body, Stream_Forked_From=f"/v1/stream/{source}", **headers)

    def post(self, name: str, body: str, **headers: str) -> httpx.Response:
        return self.at("POST", name, TEXT | _named(headers), content=body)

    def text(self, name: str, **query: str) -> str:
        answer = self.at("GET", name, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def status(self, name: str) -> int:
        return self.at("HEAD", name).status_code


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[ForkCalls]:
    with serving(tmp_path_factory.mktemp("forks") / "data") as served:
        yield ForkCalls(served.client)


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"Stream-Forked-From": "draft"}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "http://elsewhere/v1/stream/draft"}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "/v1/stream/a/../b"}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "/v1/stream/%zz"}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "/v1/stream/__ds/jwks.json"}, (404, "FORK_SOURCE_NOT_FOUND")),
        ({"Stream-Forked-From": "/v1/stream/refusing", "Stream-Fork-Offset": "-1"}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "/v1/stream/refusing", "Stream-Fork-Offset": "now"}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "/v1/stream/refusing", "Stream-Fork-Offset": ""}, (400, "INVALID_FORK")),
        ({"Stream-Forked-From": "/v1/stream/refusing", "Stream-Fork-Sub-Offset": ""}, (400, "INVALID_FORK")),
        ({"Stream-Fork-Sub-Offset": "0"}, (400, "INVALID_FORK")),
        (
            {"Stream-Forked-From": "/v1/stream/refusing", "Stream-Fork-Offset": f"{START[:-1]}2"},
            (400, "INVALID_FORK"),  # inside of an append
        ),
        (
            {"Stream-Forked-From": "/v1/stream/refusing", "Stream-Fork-Offset": f"0000000000000007_{START[17:-1]}4"},
            (400, "INVALID_FORK"),  # of an epoch in which this stream has no content
        ),
    ],
)
def test_a_fork_that_cannot_be_is_refused_and_leaves_no_reference(
    streams: ForkCalls, headers: dict[str, str], wanted: tuple[int, str]
) -> None:
    streams.put("refusing", "four", **TEXT)
    assert refused(streams.at("PUT", "refused", headers=headers)) == wanted
    assert streams.status("refused") == 404
    assert streams.at("DELETE", "refusing").status_code == 204
    assert streams.status("refusing") == 404, "a refused fork holds its source"


def test_keys_and_stream_seq_are_not_inherited(streams: ForkCalls) -> None:
    streams.put("keyed", **TEXT)
    streams.post("keyed", "one", Idempotency_Key="k", Stream_Seq="9")
    streams.fork("keyed", "keyed-fork")
    again = streams.post("keyed-fork", "two", Idempotency_Key="k", Stream_Seq="1")
    assert again.status_code == 204
    assert "idempotency-replayed" not in again.headers
    assert streams.text("keyed-fork") == "onetwo"
    assert streams.text("keyed") == "one"


def test_an_idempotency_key_of_the_fork_replays_after_its_source_is_gone(streams: ForkCalls) -> None:
    streams.put("original", "one", **TEXT)
    streams.fork("original", "copy")
    first = streams.post("copy", "two", Idempotency_Key="k")
    streams.at("DELETE", "original")
    again = streams.post("copy", "two", Idempotency_Key="k")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["stream-next-offset"] == first.headers["stream-next-offset"]
    assert streams.text("copy") == "onetwo"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_json_sub_offset_counts_messages_whatever_they_hold(streams: ForkCalls, count: int) -> None:
    messages = ['{"a":"],[\\"}{,"}', "[1,[2,{}],3]", '","', "-1.50e3"]
    streams.put(f"json-{count}", f"[{','.join(messages)}]", **JSON)
    answer = streams.fork(
        f"json-{count}", f"json-fork-{count}", Stream_Fork_Offset=START, Stream_Fork_Sub_Offset=str(count)
    )
    assert answer.status_code == 201
    assert streams.text(f"json-fork-{count}") == f"[{','.join(messages[:count])}]"
    streams.at("POST", f"json-fork-{count}", content="[7]", headers=JSON)
    assert streams.text(f"json-fork-{count}") == f"[{','.join([*messages[:count], '7'])}]"


def test_a_fork_of_forks_reads_all_of_its_chain_by_offsets_of_its_sources(streams: ForkCalls) -> None:
    streams.put("level-0", "<0>", **TEXT)
    offsets = []
    for level in range(1, 40):
        streams.fork(f"level-{level - 1}", f"level-{level}", f"<{level}>")
        offsets.append(streams.at("HEAD", f"level-{level}").headers["stream-next-offset"])
    whole = "".join(f"<{level}>" for level in range(40))
    assert streams.text("level-39") == whole
    read, offset = "", "-1"
    for _ in range(100):
        page = streams.at("GET", "level-39", params={"offset": offset})
        read, offset = read + page.text, page.headers["stream-next-offset"]
        if "stream-up-to-date" in page.headers:
            break
    assert read == whole
    for level, offset in enumerate(offsets, 1):
        assert streams.text("level-39", offset=offset) == whole[whole.index(f"<{level}>") + len(f"<{level}>") :]


def test_a_page_of_a_chain_that_is_too_long_for_one_is_continued(streams: ForkCalls) -> None:
    streams.put("deep-0", "0", **TEXT)
    for level in range(1, 80):
        streams.fork(f"deep-{level - 1}", f"deep-{level}", "x")
    page = streams.at("GET", "deep-79")
    assert "stream-up-to-date" not in page.headers
    rest = streams.at("GET", "deep-79", params={"offset": page.headers["stream-next-offset"]})
    assert page.text + rest.text == "0" + "x" * 79
    assert rest.headers["stream-up-to-date"] == "true"


def test_the_same_put_is_confirmed_when_the_source_has_moved_on_or_is_gone(streams: ForkCalls) -> None:
    streams.put("moving", "one", Stream_TTL="3600", **TEXT)
    assert streams.fork("moving", "confirmed").status_code == 201
    streams.post("moving", "two")
    assert streams.fork("moving", "confirmed").status_code == 200
    assert streams.fork("moving", "confirmed", Stream_TTL="60").status_code == 409
    assert streams.put("confirmed", **TEXT).status_code == 409, "a plain PUT does not name the source"
    streams.at("DELETE", "moving")
    assert streams.fork("moving", "confirmed").status_code == 200


def test_an_expired_source_is_gone_for_its_readers_and_its_name_is_free(streams: ForkCalls) -> None:
    streams.put("short", "old", Stream_TTL="1", **TEXT)
    streams.fork("short", "long", Stream_TTL="3600")
    deadline = time.monotonic() + 20
    while streams.status("short") == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert refused(streams.at("GET", "short")) == (410, "STREAM_GONE")
    assert refused(streams.fork("short", "other")) == (409, "FORK_SOURCE_GONE")
    assert streams.put("short", "new", **TEXT).status_code == 201
    assert streams.text("short") == "new"
    assert streams.text("long") == "old"
    assert streams.at("DELETE", "long").status_code == 204
    for _ in range(20):  # the release of the old stream follows the answer
        assert streams.text("short") == "new", "the end of a fork of the old stream ended the new one"
        time.sleep(0.05)
    assert streams.at("DELETE", "short").status_code == 204
    assert streams.status("short") == 404, "a fork of the old stream was counted at the new one"


def test_a_caller_forks_only_what_it_may_read(tmp_path: Path) -> None:
    known = {"all": ("a" * 32, ["write", "read"], []), "few": ("f" * 32, ["write", "read"], ["streams:open/*"])}
    with serving(tmp_path / "data", TOKENS=str(token_file(tmp_path, known))) as served:
        streams = ForkCalls(served.client)
        streams.http.headers["authorization"] = f"Bearer {known['all'][0]}"
        streams.put("closed/secret", "hidden", **TEXT)
        streams.http.headers["authorization"] = f"Bearer {known['few'][0]}"
        assert refused(streams.fork("closed/secret", "open/stolen")) == (403, "FORBIDDEN")
        assert refused(streams.fork("closed/missing", "open/stolen")) == (403, "FORBIDDEN")
        assert streams.status("open/stolen") == 404


@pytest.mark.each_store
def test_what_a_kill_left_of_a_clean_up_is_freed_by_the_next_server(tmp_path: Path, store_kind: str) -> None:
    """Killed right behind the delete: releases and purges are still to be done."""
    store = fresh_url() if store_kind == "postgres" else f"sqlite:{tmp_path / 'data'}"
    server = RunningServer(tmp_path / "data", env={"SEMEL_SWEEP_INTERVAL_MS": "600000", "SEMEL_STORE": store})
    with server, httpx.Client(base_url=server.url, timeout=30) as http:
        streams = ForkCalls(http)
        streams.put("top", "0", **TEXT)
        for level in range(1, 30):
            streams.fork("top" if level == 1 else f"below-{level - 1}", f"below-{level}", str(level))
        for name in ("top", *(f"below-{level}" for level in range(1, 29))):
            assert streams.at("DELETE", name).status_code == 204
            assert streams.status(name) == 410
        assert streams.at("DELETE", "below-29").status_code == 204
        server.kill()
        server.start({"SEMEL_SWEEP_INTERVAL_MS": "20"})
        deadline = time.monotonic() + 60
        while not rows_of(store).is_empty and time.monotonic() < deadline:
            time.sleep(0.1)
        assert rows_of(store).is_empty, faults_of(rows_of(store))
        assert streams.status("top") == 404
