"""Limits of connections, heads and times: what is over one is refused, counted and told; then there is room again."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from semel.server.http.connection_limit import ADDRESS, CONNECTIONS, DESCRIPTORS, LOG_SECONDS, ConnectionLimit
from semel.server.http.remote_address import counted_as, networks_of
from tests.harness.server import HOST, RunningServer, path_with
from tests.harness.together import eventually
from tests.streams.wire import Wire, request

STRANGER, NEIGHBOUR = "127.0.0.2", "127.0.0.3"
"""Remote addresses that count, unlike that of a proxy on this machine."""
GREETING = request("GET", "/livez")
HANDSHAKE = request(
    "GET",
    "/v1/events",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[RunningServer]:
    env = {f"SEMEL_{name.upper()}": str(value) for name, value in settings.items()}
    with RunningServer(folder / "data", env={"SEMEL_LOG_FORMAT": "json"} | env, grpc=True) as server:
        yield server


class Caller(Wire):
    """A connection that comes from one of the addresses of loopback."""

    def __init__(self, server: RunningServer, address: str = HOST, port: int = 0) -> None:
        self._socket = socket.create_connection((HOST, port or server.port), 30, source_address=(address, 0))
        self._buffer = b""

    def status(self, asked: bytes = GREETING) -> int:
        self.send(asked)
        return self.answer().status_code


def refused(server: RunningServer, reason: str) -> int:
    figures = httpx.get(server.url + "/metrics").json()
    return int(figures[f"semel_connections_refused_total{{reason={reason}}}"])


def told(server: RunningServer, words: str) -> list[dict[str, object]]:
    """Log lines with these words."""
    lines = (json.loads(line) for line in server.output.read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if words in line["message"]]


# -- File descriptors -------------------------------------------------------------------------------------------------

FILES = 96


def test_a5_out_of_file_descriptors_is_told_and_counted_and_passes(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))\n"
    (site / "sitecustomize.py").write_text(limit)
    path = "/v1/stream/there"
    with RunningServer(tmp_path / "data", env=path_with(site) | {"SEMEL_LOG_FORMAT": "json"}) as server:
        with httpx.Client(base_url=server.url) as early, ExitStack() as crowd:
            early.put(path, headers={"Content-Type": "text/plain"}).raise_for_status()
            for _ in range(2 * FILES):
                crowd.enter_context(Caller(server))
            eventually(lambda: told(server, "out of file descriptors") != [], "a line in the log")
            appended = early.post(path, headers={"Content-Type": "text/plain"}, content=b"x")
            assert appended.status_code == 204  # the last descriptors are the store's
            figures = early.get("/metrics").json()
            assert figures["semel_connections_refused_total{reason=descriptors}"] > 0
            assert figures["semel_http_requests_total{method=-,status=503,surface=none}"] > 0  # and they were told
        eventually(lambda: refused_again(server), "room for others")
        assert len(told(server, "out of file descriptors")) <= 2
        assert refused(server, "descriptors") > 0


def refused_again(server: RunningServer) -> bool:
    """Whether a new connection is served as if nothing had been."""
    try:
        return httpx.get(server.url + "/livez").status_code == 200
    except httpx.TransportError:
        return False


# -- Connections ------------------------------------------------------------------------------------------------------


def test_a5_an_address_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    with serving(tmp_path, http_max_connections_per_address=2) as server, ExitStack() as stack:
        mine = [stack.enter_context(Caller(server, STRANGER)) for _ in range(2)]
        assert [one.status() for one in mine] == [200, 200]
        with Caller(server, STRANGER) as third:
            answer = third.answer()
            assert (answer.status_code, answer.json()["code"]) == (503, "OVERLOADED")
            assert third.closed()
        with Caller(server, NEIGHBOUR) as other:
            assert other.status() == 200
        proxy = [stack.enter_context(Caller(server)) for _ in range(5)]
        assert [one.status() for one in proxy] == [200] * 5
        assert refused(server, "address") == 1
        assert len(told(server, "one address")) == 1
        mine[0].reset()
        eventually(lambda: is_let_in(server, STRANGER), "room for the address")


def is_let_in(server: RunningServer, address: str) -> bool:
    with Caller(server, address) as caller:
        return caller.status() == 200


def test_a5_a_websocket_counts_until_it_ends(tmp_path: Path) -> None:
    with serving(tmp_path, http_max_connections_per_address=1) as server:
        with Caller(server, STRANGER) as talking:
            assert talking.status(HANDSHAKE) == 101
            assert not is_let_in(server, STRANGER)
        eventually(lambda: is_let_in(server, STRANGER), "room for the address")


def test_a5_http_and_grpc_count_together(tmp_path: Path) -> None:
    with serving(tmp_path, http_max_connections_per_address=1) as server:
        with Caller(server, STRANGER) as caller:
            assert caller.status() == 200
            with Caller(server, STRANGER, server.grpc_port) as second:
                assert second.closed()
        eventually(lambda: is_greeted(server), "room for the address")
        assert refused(server, "address") >= 1


def is_greeted(server: RunningServer) -> bool:
    """Whether gRPC speaks to us: the server's SETTINGS come first."""
    with Caller(server, STRANGER, server.grpc_port) as caller:
        return not caller.closed()


def test_a5_addresses_that_are_named_have_no_limit(tmp_path: Path) -> None:
    uncounted = "127.0.0.2/31, ::1"
    settings = {"http_max_connections_per_address": 1, "http_uncounted_addresses": uncounted}
    with serving(tmp_path, **settings) as server, ExitStack() as stack:
        callers = [stack.enter_context(Caller(server, one)) for one in (STRANGER, NEIGHBOUR, STRANGER)]
        assert [one.status() for one in callers] == [200] * 3


def test_a5_all_connections_have_a_limit(tmp_path: Path) -> None:
    with serving(tmp_path, http_max_connections=3) as server, ExitStack() as stack:
        callers = [stack.enter_context(Caller(server)) for _ in range(3)]
        assert [one.status() for one in callers] == [200] * 3
        with Caller(server) as fourth:
            assert fourth.answer().status_code == 503
        callers[0].send(request("GET", "/metrics"))
        assert callers[0].answer().json()["semel_connections_refused_total{reason=connections}"] == 1


# -- Heads and times --------------------------------------------------------------------------------------------------


def test_a5_a_head_has_so_many_bytes_and_fields(tmp_path: Path) -> None:
    with serving(tmp_path, http_max_head_bytes=2_000) as server:
        for fields, status in (
            ([b"X: 1"] * 126, 200),
            ([b"X: 1"] * 129, 431),
            ([b"X: " + b"1" * 1_900], 200),
            ([b"X: " + b"1" * 2_000], 431),
        ):
            with Caller(server) as caller:
                assert caller.status(request("GET", "/livez", *fields)) == status


SLOW = {
    "silence": ("http_silence_ms", b"GET /livez HTTP/1.1\r\n"),
    "head": ("http_head_ms", b"GET /livez HTTP/1.1\r\n"),
    "body": ("http_body_ms", request("POST", "/v1/stream/s", b"Content-Length: 10")),
    "idle": ("http_idle_ms", b""),
}


@pytest.mark.parametrize("name", SLOW)
def test_a5_a_request_has_so_much_time(tmp_path: Path, name: str) -> None:
    setting, sent = SLOW[name]
    with serving(tmp_path, **{setting: 500}) as server, Caller(server) as caller:
        caller.send(sent)
        assert caller.answer().status_code == 408
        assert caller.closed()


def test_a5_a_kept_connection_has_so_much_time(tmp_path: Path) -> None:
    with serving(tmp_path, http_idle_ms=500) as server, Caller(server) as caller:
        assert caller.status() == 200
        assert caller.closed()


def test_a5_an_answer_that_is_not_read_has_so_much_time(tmp_path: Path) -> None:
    path, text = "/v1/stream/large", {"Content-Type": "text/plain"}
    with serving(tmp_path, http_stall_ms=500, streams_page_bytes=64 * 1024 * 1024) as server:
        httpx.put(server.url + path, headers=text).raise_for_status()
        httpx.post(server.url + path, headers=text, content=b"x" * 16_000_000).raise_for_status()
        with Caller(server) as caller:
            caller.send(request("GET", f"{path}?offset=-1"))
            eventually(lambda: open_connections(server) == 1, "the reader is cut off")


def open_connections(server: RunningServer) -> int:
    return int(httpx.get(server.url + "/metrics").json()["semel_http_connections"])


# -- The rules alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::7", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("10.1.2.3", ""),
        ("", ""),
        ("a socket's path", ""),
    ],
)
def test_a5_what_an_address_is_counted_as(address: str, expected: str) -> None:
    assert counted_as(address, networks_of("127.0.0.1,::1, 10.0.0.0/8")) == expected


def test_a5_refusals_are_logged_once_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    limit = ConnectionLimit(most=1, per_address=0)
    for now in range(100):
        assert limit.refusal("192.0.2.7", 2, 3, float(now)) is not None
    limit.check(LOG_SECONDS * 2)
    limit.check(LOG_SECONDS * 4)
    assert [getattr(record, "refused", 0) for record in caplog.records] == [1, 60, 39]
    assert limit.refused[CONNECTIONS] == 100


def test_a5_the_last_descriptors_are_kept_back() -> None:
    limit = ConnectionLimit(most=10, per_address=0, files=128)
    assert [limit.refusal("", 1, number, 0.0) is None for number in (3, 111, 112, 127)] == [True, True, False, False]
    assert limit.refused[DESCRIPTORS] == 2


def test_a5_nothing_is_kept_of_an_address_that_has_left() -> None:
    limit = ConnectionLimit(most=10, per_address=1)
    for number in range(100):
        assert limit.refusal(f"192.0.2.{number}", 1, 3, 0.0) is None
        limit.leave(f"192.0.2.{number}")
    assert limit.refusal("192.0.2.7", 1, 3, 0.0) is None
    assert limit.refusal("192.0.2.7", 1, 3, 0.0) is not None
    assert limit.refused[ADDRESS] == 1
