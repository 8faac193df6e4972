"""The WebSocket: who is let in, frames and their answers, and how a connection ends."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from semel.server.websocket.transport import MAX_REASON_BYTES
from tests.deltas.binary.caller import address, joined, pull_frame, push_frame
from tests.deltas.rig import signed
from tests.deltas.vectors import columns, delta, forged, now_ms, stamp
from tests.deltas.wire import Deltas, fresh, hlcs, serving
from tests.harness.server import HOST
from tests.harness.together import eventually, log_of

SECRET = "a secret of at least thirty-two bytes"
PAGE = "https://app.example"


def test_a_push_and_a_pull(deltas: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    first = delta("INSERT", columns(title="\u00e9", done=False), hlc=next(hlc), client="a")
    second = delta("UPDATE", columns(title=None), hlc=next(hlc), client="a")
    with joined(deltas.nodes[0].port, gateway, "a") as line, joined(deltas.nodes[-1].port, gateway, "b") as other:
        pushed = line.push(first, second)
        assert pushed.deltas == []
        assert pushed.hlc > int(second["hlc"])
        assert line.push(first).deltas == []
        told = other.pull()
        assert told.deltas == [first, second]
        assert not told.has_more
        assert other.pull(told.hlc).deltas == []
        assert other.pull(0, 1).has_more
    assert deltas.pull(gateway)["deltas"] == [first, second]
    assert deltas.gauges(gateway)["deltaCount"] == 2


def test_what_came_over_http_goes_out_over_the_socket(one: Deltas) -> None:
    gateway = fresh("gw")
    odd = delta("INSERT", [{"column": "a"}, {"column": "b", "value": {"x": "\ud800"}}], row="\u884c/1 ")
    one.push(gateway, [odd])
    with joined(one.server.port, gateway, "b", version="") as line:
        [entry] = line.pull().deltas
    assert entry == odd | {"columns": columns(a=None, b={"x": "\ud800"})}


def test_an_empty_gateway_has_an_answer(one: Deltas) -> None:
    with joined(one.server.port, fresh("gw"), "a") as line:
        assert line.pull() == ([], 0, False)
        assert line.push().hlc > 0


def test_answers_come_in_the_order_of_the_frames(one: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    with joined(one.server.port, gateway, "a") as line:
        for number in range(30):
            line.send(
                push_frame([delta("INSERT", columns(n=number), row=f"r{number}", hlc=next(hlc), client="a")], "a")
            )
            line.send(pull_frame("a", 0, 10_000))
        for number in range(30):
            assert line.answer().deltas == []
            assert len(line.answer().deltas) == number + 1


def test_a_message_in_pieces(one: Deltas) -> None:
    gateway = fresh("gw")
    raw = push_frame([delta("INSERT", columns(text="x" * 300_000), client="a")], "a")
    with joined(one.server.port, gateway, "a") as line:
        line.connection.send([raw[place : place + 10_000] for place in range(0, len(raw), 10_000)])
        assert line.answer().hlc > 0
        [entry] = line.pull().deltas
    assert entry["columns"] == columns(text="x" * 300_000)


ENDINGS: dict[str, tuple[Any, int, str]] = {
    "text": ("hello", 1002, "frame"),
    "nothing": (b"", 1002, "frame"),
    "unknown tag": (b"\x07abc", 1002, "frame"),
    "a broadcast": (b"\x03\x18\x01", 1002, "frame"),
    "no protobuf": (b"\x01\xff\xff", 1002, "frame"),
    "no client": (b"\x01", 1008, "VALIDATION_ERROR"),
    "pull without a client": (b"\x02", 1008, "VALIDATION_ERROR"),
    "forged id": (push_frame([forged(delta("UPDATE", columns(a=1), client="a"))], "a"), 1008, "VALIDATION_ERROR"),
    "bad table": (push_frame([delta("UPDATE", table="a b", client="a")], "a"), 1008, "SCHEMA_ERROR"),
    "drift": (push_frame([delta("UPDATE", hlc=stamp(2**47), client="a")], "a"), 1008, "CLOCK_DRIFT"),
    "too large": (b"\x01" + bytes(1024 * 1024 + 1), 1009, "bytes"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_connection_ends_with_its_reason(one: Deltas, name: str) -> None:
    message, code, word = ENDINGS[name]
    gateway = fresh("gw")
    with joined(one.server.port, gateway, "a") as line:
        line.send(push_frame([delta("INSERT", columns(a=0), row="before", client="a")], "a"))
        with suppress(ConnectionClosed):  # the server may be quicker than this client
            line.send(message)
            line.send(push_frame([delta("INSERT", columns(a=0), row="after", client="a")], "a"))
        assert line.answer().hlc > 0
        ended = line.ending()
    assert ended[0] == code
    assert word in ended[1]
    assert [entry["rowId"] for entry in one.log(gateway)] == ["before"]


def test_a_long_reason_is_cut_between_characters(one: Deltas) -> None:
    gateway = fresh("gw")
    one.schema(gateway, "t" * 64, a="string")
    with joined(one.server.port, gateway, "a") as line:
        line.send(push_frame([delta("UPDATE", columns(**{"c" * 64: 1}), table="t" * 64, client="a")], "a"))
        code, reason = line.ending()
    assert code == 1008
    assert len(reason) == MAX_REASON_BYTES


def test_the_largest_message_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path / "small", DELTAS_MAX_BODY_BYTES=2_000, DELTAS_MAX_SOCKETS=1) as deltas:
        gateway = fresh("gw")
        padded = push_frame([delta("INSERT", columns(text=""), client="a")], "a")
        room = 2_001 - len(padded)
        with joined(deltas.server.port, gateway, "a") as line:
            # Lengths that grow make their own field grow: look for the text that just fits.
            sizes = (
                push_frame([delta("INSERT", columns(text="x" * size), client="a")], "a") for size in range(room, 0, -1)
            )
            raw = next(raw for raw in sizes if len(raw) <= 2_001)
            assert len(raw) == 2_001
            line.send(raw)
            assert line.answer().hlc > 0
            with pytest.raises(InvalidStatus) as refused, joined(deltas.server.port, gateway, "b"):
                pass
            check_refusal(refused.value, 503, "BACKPRESSURE_ERROR")
            line.send(raw + b"\x18")
            assert line.ending()[0] == 1009
        eventually(lambda: _sockets(deltas) == 0, "the socket is counted out")
        with joined(deltas.server.port, gateway, "b") as line:
            assert len(line.pull().deltas) == 1


def _sockets(deltas: Deltas) -> int:
    found: int = deltas.send("GET", "/metrics").json()["semel_deltas_sockets"]
    return found


def check_refusal(refused: InvalidStatus, status: int, code: str) -> None:
    """The refusal of a handshake is an answer like any other of the surface."""
    response = refused.response
    assert response.status_code == status
    body = json.loads(response.body)
    assert body["code"] == code
    assert body["requestId"] == response.headers["X-Request-Id"]
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["API-Version"] == "v1"


def test_without_the_upgrade_and_elsewhere_there_is_nothing(one: Deltas) -> None:
    assert one.call("GET", "/v1/sync/gw/ws", expect=404).code == "NOT_FOUND"
    for path in ("/v1/sync/gw/push", "/v1/sync//ws", "/v1/sync/%ff/ws", "/v1/admin/gw/ws", "/v1/sync/gw/ws/"):
        with pytest.raises(InvalidStatus) as refused, joined(one.server.port, "x", "a", version=f"{path}?"):
            pass
        assert refused.value.response.status_code == 404, path


def test_a_stop_ends_connections(tmp_path: Path) -> None:
    with serving(tmp_path / "stopped") as deltas, joined(deltas.server.port, fresh("gw"), "a") as line:
        line.pull()
        deltas.server.restart()
        assert line.ending()[0] == 1001


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """A server that wants tokens, and pages of one origin."""
    folder = tmp_path_factory.mktemp("guarded")
    with serving(folder / "guarded", DELTAS_JWT_SECRET=SECRET, ALLOWED_ORIGINS=PAGE, LOG_LEVEL="debug") as deltas:
        yield deltas


def token(sub: str = "a", gw: str = "gw1", seconds: float = 3_600, **claims: Any) -> str:
    return signed({"sub": sub, "gw": gw, "exp": time.time() + seconds} | claims, SECRET)


@pytest.mark.parametrize("way", ["header", "query", "both"])
def test_a_token_in_the_header_or_in_the_query(guarded: Deltas, way: str) -> None:
    made = token()
    query = "" if way == "header" else f"?token={made}"
    with joined(guarded.server.port, "gw1", "a", token="" if way == "query" else made, query=query) as line:
        assert line.push(delta("UPDATE", columns(way=way), row=way, client="a", hlc=stamp(now_ms()))).hlc > 0


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no token": ({"query": ""}, 401, "AUTH_ERROR"),
    "empty token": ({"query": "?token="}, 401, "AUTH_ERROR"),
    "junk": ({"query": "?token=junk"}, 401, "AUTH_ERROR"),
    "not text": ({"query": "?token=%ff%00"}, 401, "AUTH_ERROR"),
    "expired": ({"query": f"?token={token(seconds=-10)}"}, 401, "AUTH_ERROR"),
    "two tokens": ({"query": f"?token={token()}&token={token('b')}"}, 401, "AUTH_ERROR"),
    "another in the header": ({"query": f"?token={token()}", "token": token("b")}, 401, "AUTH_ERROR"),
    "another gateway": ({"query": f"?token={token(gw='gw2')}"}, 403, "AUTH_ERROR"),
    "another role": ({"query": f"?token={token(role='guest')}"}, 403, "AUTH_ERROR"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_handshake_is_refused(guarded: Deltas, name: str) -> None:
    where, status, code = REFUSED[name]
    with pytest.raises(InvalidStatus) as refused, joined(guarded.server.port, "gw1", "a", **where):
        pass
    check_refusal(refused.value, status, code)


HANDSHAKE = {
    "Host": "localhost",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "X-Request-Id": "mine",
}
BROKEN: dict[str, tuple[str, dict[str, str | None], int, str]] = {
    "version": ("GET", {"Sec-WebSocket-Version": "12"}, 400, "VALIDATION_ERROR"),
    "no version": ("GET", {"Sec-WebSocket-Version": None}, 400, "VALIDATION_ERROR"),
    "key": ("GET", {"Sec-WebSocket-Key": "\u00ff"}, 400, "VALIDATION_ERROR"),
    "no key": ("GET", {"Sec-WebSocket-Key": None}, 400, "VALIDATION_ERROR"),
    "method": ("POST", {}, 404, "NOT_FOUND"),
    "stranger": ("GET", {}, 401, "AUTH_ERROR"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_handshake_that_is_not_in_order(guarded: Deltas, name: str) -> None:
    """It is refused like any other call, under the name that the caller has given it."""
    method, changed, status, code = BROKEN[name]
    fields = {field: value for field, value in (HANDSHAKE | changed).items() if value is not None}
    head = f"{method} /v1/sync/gw1/ws HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    with socket.create_connection((HOST, guarded.server.port), 20) as line:
        line.sendall(f"{head}\r\n".encode("latin-1"))
        with HTTPResponse(line) as response:
            response.begin()
            told = json.loads(response.read())
    assert (response.status, told["code"]) == (status, code)
    assert told["requestId"] == response.headers["X-Request-Id"] == "mine"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Connection"] == "close"


def test_headers_that_are_no_text_harm_nobody(guarded: Deltas) -> None:
    head = (
        "GET /v1/sync/gw1/ws?token=\u00e9 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    )
    head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nX-Note: \u00e9\u00ff\r\n\r\n"
    for encoding in ("utf-8", "latin-1"):
        for shown in (head, head.replace("?token=\u00e9", "?token=x")):
            with socket.create_connection((HOST, guarded.server.port), 20) as line:
                line.sendall(shown.encode(encoding))
                assert line.recv(1_000).split()[1] in (b"400", b"401")


def test_pages_of_other_origins_stay_outside(guarded: Deltas) -> None:
    uri = address(guarded.server.port, "gw1", query=f"?token={token()}")
    with connect(uri, origin=Origin(PAGE), proxy=None) as connection:
        connection.send(pull_frame("a", 0))
        assert connection.recv(20)
    with pytest.raises(InvalidStatus) as refused, connect(uri, origin=Origin("https://evil.example"), proxy=None):
        pass
    check_refusal(refused.value, 403, "FORBIDDEN_ORIGIN")


def test_a_client_pushes_as_itself(guarded: Deltas) -> None:
    for pusher, author in (("b", "b"), ("a", "b")):
        with joined(guarded.server.port, "gw1", "a", token=token()) as line:
            line.send(push_frame([delta("UPDATE", columns(x=1), client=author)], pusher))
            code, reason = line.ending()
        assert code == 1008
        assert reason.startswith("FORBIDDEN")
    with joined(guarded.server.port, "gw1", "relay", token=token("relay", role="admin")) as line:
        assert line.push(delta("UPDATE", columns(x=2), client="b")).hlc > 0


def test_who_asks_for_another_client_leaves_no_trace_of_it(guarded: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    port = guarded.server.port
    made = delta("INSERT", columns(x=1), row="r1", client="root", hlc=next(hlc))
    with (
        joined(port, gateway, "ann", token=token("guest", gateway)) as guest,
        joined(port, gateway, "root", token=token("root", gateway)) as root,
    ):
        guest.pull()
        root.push(made)
        assert guest.broadcast().ids == [made["deltaId"]]
        assert guest.pull().ids == [made["deltaId"]]
    with joined(port, gateway, "ann", token=token("ann", gateway)) as ann:
        cursor = ann.push(delta("INSERT", columns(x=1), row="mine", client="ann", hlc=next(hlc))).hlc
        assert set(ann.pull(cursor).ids) == {made["deltaId"]}


def test_a_connection_ends_with_its_token(guarded: Deltas) -> None:
    for seconds in (1.5, 6.0, 24.0):
        try:
            with joined(guarded.server.port, "gw1", "a", token=token(seconds=seconds)) as line:
                code, reason = line.ending()
        except InvalidStatus:
            continue  # it took so long to come here that the token was over
        assert code == 1008
        assert reason.startswith("AUTH_ERROR")
        return
    pytest.fail("no token was good for long enough")


def test_no_token_is_written_down(guarded: Deltas) -> None:
    made = token("somebody")
    with joined(guarded.server.port, "gw1", "somebody", query=f"?token={made}") as line:
        line.pull()
    with pytest.raises(InvalidStatus), joined(guarded.server.port, "gw9", "a", query=f"?token={made}"):
        pass
    folder = guarded.nodes[0].data / "logs"

    def audit() -> str:
        return "".join(path.read_text() for path in sorted(folder.glob("*")))

    eventually(lambda: "/v1/sync/gw9/ws" in audit(), "the refusal is on record")
    for text in (log_of(guarded.server), audit()):
        assert made.split(".")[2] not in text
        assert "token=" not in text


def test_a_client_that_is_too_quick_is_slowed_down(tmp_path: Path) -> None:
    with serving(tmp_path / "paced", DELTAS_PUSHES_PER_SEC=2) as deltas, joined(deltas.server.port, "gw", "a") as line:
        for number in range(4):
            line.send(push_frame([delta("INSERT", columns(n=number), row=f"r{number}", client="a")], "a"))
        assert [line.answer().deltas for _ in range(4)] == [[]] * 4
