"""`semel proxy` on real sockets, requests without a key or a route: not one byte of them changes."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from semel.once import Once
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.proxy.running import CLIENT, exchanged, proxied
from tests.proxy.upstream import Upstream, reply, serving

ALL_BYTES = bytes(range(256)) * 1_200
"""More than one piece of any buffer on the way."""


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Upstream, str]]:
    """One proxy for all tests that need no limit of their own."""
    store = Once.memory()
    with serving() as service, proxied(service.url, store) as url:
        yield service, url
    store.close()


@pytest.fixture
def upstream(shared: tuple[Upstream, str]) -> Upstream:
    """The service, with nothing seen."""
    service = shared[0]
    service.seen.clear()
    service.replies.clear()
    service.broken_off.clear()
    return service


@pytest.fixture
def url(shared: tuple[Upstream, str]) -> str:
    """Where the proxy is."""
    return shared[1]


def sent(url: str, text: str, body: bytes = b"") -> tuple[str, list[str], bytes]:
    """The status line, the fields and the body that come back on a connection that is closed behind it."""
    lines = [*text.split("\n"), "Connection: close", "", ""]
    head, _, rest = exchanged(url, "\r\n".join(lines).encode("latin-1") + body).partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    return status, fields, rest


@pytest.mark.parametrize("target", ["/a%2Fb//c/../d;x=1?q=%20&&z=%C3%A9", "/?", "//double", "/%e2%82%ac?a=b?c"])
def test_the_target_arrives_as_it_was_sent(upstream: Upstream, url: str, target: str) -> None:
    sent(url, f"GET {target} HTTP/1.1\nHost: h")
    assert upstream.seen[0].line == f"GET {target.removesuffix('?')} HTTP/1.1"


def test_fields_and_body_of_a_request_arrive_as_they_were_sent(upstream: Upstream, url: str) -> None:
    fields = ["Host: shop.example", "Cookie: a=1", "X-Two: 2", "Cookie: b=2", "Accept-Encoding: br", "X-Empty:"]
    fields += ["Content-Encoding: gzip", "Content-Type: text/odd", "X-Name: \xc3\xa9", "Authorization: Basic eDp5"]
    body = gzip.compress(ALL_BYTES)
    sent(url, "\n".join(["POST /unrouted HTTP/1.1", *fields, f"Content-Length: {len(body)}"]), body)
    seen = upstream.seen[0]
    assert seen.body == body
    arrived = [f"{name}: {value}".lower().rstrip() for name, value in seen.fields]
    ours = ("x-forwarded", "via", "connection")
    assert [one for one in arrived if not one.startswith((*ours, "content-length"))] == [one.lower() for one in fields]
    assert seen.values("content-length") == [str(len(body))]
    assert seen.values("x-forwarded-for") == [HOST]
    assert seen.values("via") == ["1.1 semel"]


def test_a_body_in_chunks_is_forwarded_in_chunks(upstream: Upstream, url: str) -> None:
    body = b"".join(b"%x\r\n" % len(piece) + piece + b"\r\n" for piece in (b"one", ALL_BYTES, b"")) + b""
    sent(url, "PUT /unrouted HTTP/1.1\nHost: h\nTransfer-Encoding: chunked", body)
    seen = upstream.seen[0]
    assert seen.body == b"one" + ALL_BYTES
    assert (seen.values("transfer-encoding"), seen.values("content-length")) == (["chunked"], [])


def test_an_answer_arrives_as_it_was_sent(upstream: Upstream, url: str) -> None:
    body = gzip.compress(ALL_BYTES)
    fields = ["Set-Cookie: a=1; Path=/", "X-Own: \xe9", "Set-Cookie: b=2", "Content-Encoding: gzip", "Server: own/1"]
    upstream.replies["/x"] = reply(200, body, *fields, "Connection: X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5")
    status, told, rest = sent(url, "GET /x HTTP/1.1\nHost: h\nAccept-Encoding: gzip")
    assert status.startswith("HTTP/1.1 200 ")
    assert rest == body
    date = "Date: Tue, 17 Nov 2026 08:00:00 GMT"
    assert [one for one in told if one.lower() != "connection: close"] == [
        f"Content-Length: {len(body)}",
        date,
        *fields,
    ]


def test_an_answer_in_chunks_and_one_until_its_end_arrive_whole(upstream: Upstream, url: str) -> None:
    upstream.replies["/chunks"] = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n2\r\ntw\r\n0\r\n\r\n"
    )
    upstream.replies["/end"] = b"HTTP/1.0 200 OK\r\n\r\n" + ALL_BYTES
    assert CLIENT.get(f"{url}/chunks").content == b"onetw"
    assert CLIENT.get(f"{url}/end").content == ALL_BYTES


def test_head_redirects_and_answers_without_a_body(upstream: Upstream, url: str) -> None:
    upstream.replies["/head"] = reply(200, b"")[: -len("\r\n")].replace(b"Length: 0", b"Length: 77") + b"\r\n"
    status, fields, rest = sent(url, "HEAD /head HTTP/1.1\nHost: h")
    assert status.startswith("HTTP/1.1 200 ")
    assert ("Content-Length: 77" in fields, rest) == (True, b"")
    upstream.replies["/moved"] = reply(307, b"gone", "Location: https://elsewhere.example/x")
    moved = CLIENT.get(f"{url}/moved")
    assert (moved.status_code, moved.headers["location"]) == (307, "https://elsewhere.example/x")
    upstream.replies["/none"] = b"HTTP/1.1 204 No Content\r\nETag: 1\r\n\r\n"
    assert CLIENT.delete(f"{url}/none").status_code == 204
    upstream.replies["/same"] = b"HTTP/1.1 304 Not Modified\r\nETag: 1\r\nContent-Length: 9\r\n\r\n"
    assert CLIENT.get(f"{url}/same").status_code == 304
    assert len(upstream.seen) == 4


def connected(url: str) -> socket.socket:
    return socket.create_connection((HOST, int(url.rpartition(":")[2])), timeout=25)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        piece = connection.recv(1)
        assert piece, found
        found += piece
    return found


def test_both_directions_are_streamed(upstream: Upstream, url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nfirst")
        assert read_until(connection, b"first").startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"other")
        assert read_until(connection, b"other") == b"other"


def test_a_client_that_leaves_ends_what_it_asked_for(upstream: Upstream, url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        read_until(connection, b"ping")
    assert upstream.broken_off.wait(25)
    upstream.broken_off.clear()
    upstream.begun.clear()
    with connected(url) as connection:
        connection.sendall(b"POST /unrouted HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nfirst")
        assert upstream.begun.wait(25)
        connection.shutdown(socket.SHUT_WR)
        eventually(upstream.broken_off.is_set, "the upstream sees that the body breaks off")
    assert len(upstream.seen) == 1


def test_what_cannot_be_passed_on_is_refused_in_one_sentence(upstream: Upstream, url: str) -> None:
    upgrade = "GET /ws HTTP/1.1\nHost: h\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: eA=="
    for text, status in [
        (upgrade.replace("Upgrade:", "Connection: Upgrade\nUpgrade:"), 501),
        ("CONNECT h:80 HTTP/1.1\nHost: h", 501),
        ("GET http://h/x HTTP/1.1\nHost: h", 400),
        ("GET /x#y HTTP/1.1\nHost: h", 400),
        ("GET /x HTTP/1.1\nHost: h\nX-Name: \xe9", 400),
        ("GET /x HTTP/1.1\nHost: h\nX-Long: " + "x" * 400_000, 400),
    ]:
        assert sent(url, text)[0].startswith(f"HTTP/1.1 {status} "), text[:30]
    assert upstream.seen == []


def code(method: str, url: str) -> tuple[int, str]:
    answer = CLIENT.request(method, url, content=b"5" if method == "POST" else None)
    return answer.status_code, answer.json()["code"]


def test_an_upstream_that_fails_is_told_as_a_gateway_tells_it(upstream: Upstream) -> None:
    store = Once.memory()
    with proxied(upstream.url, store, idle_timeout=1.0, routes=()) as url:
        assert code("POST", f"{url}/lost") == (502, "upstream_failed")
        upstream.gate.clear()
        assert code("GET", f"{url}/hold") == (504, "upstream_timeout")
    with proxied(f"http://{HOST}:{free_port()}", store, routes=()) as url:
        assert code("POST", url) == (502, "upstream_unreachable")
    store.close()


def test_an_answer_that_breaks_off_arrives_broken_off(upstream: Upstream, url: str) -> None:
    upstream.replies["/chunks"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
    upstream.replies["/large"] = reply(201, b"y" * 3_000_000)[:-1]
    for path in ("/half", "/chunks"):
        with pytest.raises(httpx.RemoteProtocolError):
            CLIENT.post(url + path)
    with pytest.raises(httpx.RemoteProtocolError):
        CLIENT.post(f"{url}/large", headers={"Idempotency-Key": "large"})
    again = CLIENT.post(f"{url}/large", headers={"Idempotency-Key": "large"})
    assert (again.status_code, again.json()["code"]) == (409, "answer_not_stored")
    assert len(upstream.seen) == 3


def test_an_upstream_that_does_not_read_is_given_up(upstream: Upstream) -> None:
    store = Once.memory()
    upstream.gate.clear()
    with proxied(upstream.url, store, idle_timeout=1.0, routes=()) as url:
        answer = CLIENT.post(f"{url}/deaf", content=b"x" * 30_000_000)
        assert (answer.status_code, answer.json()["code"]) == (504, "upstream_timeout")
        upstream.gate.set()
    store.close()


def test_more_requests_than_the_limit_are_503(upstream: Upstream) -> None:
    store = Once.memory()
    with proxied(upstream.url, store, max_requests=1) as url, connected(url) as first:
        first.sendall(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        read_until(first, b"ping")
        refused = CLIENT.get(f"{url}/x")
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        first.close()
        eventually(lambda: CLIENT.get(f"{url}/x").status_code == 201, "there is room again")
    store.close()


def test_the_access_log_has_neither_query_nor_header(
    upstream: Upstream, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "semel.proxy"):
        CLIENT.post(f"{url}/charges?token=secret", headers={"Authorization": "secret", "Idempotency-Key": "secret-1"})
        CLIENT.post(f"{url}/charges?token=secret", headers={"Authorization": "secret", "Idempotency-Key": "secret-1"})
        CLIENT.post(f"{url}/lost?token=secret", headers={"Authorization": "secret", "Idempotency-Key": "secret-2"})
        eventually(lambda: len(caplog.records) == 4, "each request has a line")
    lines = [record.getMessage() for record in caplog.records]
    assert "secret" not in "".join(lines)
    assert lines[0].startswith("POST /charges 201 ")
    assert lines[1].endswith(" replayed")
    assert lines[2] == "the outcome of POST /lost is unknown: OutcomeUnknown after ServerDisconnectedError"
    assert lines[3].startswith("POST /lost 409 ")


def test_receipts_outlive_the_proxy(upstream: Upstream, tmp_path: Path) -> None:
    for turn in range(2):
        store = Once(str(tmp_path / "proxy.db"))
        with proxied(upstream.url, store) as url:
            answer = CLIENT.post(f"{url}/charges", content=b"5", headers={"Idempotency-Key": "kept"})
            assert ("idempotency-replayed" in answer.headers) == bool(turn)
        store.close()
    assert len(upstream.seen) == 1
