"""The plain dialect on the wire: pushes that carry a cursor, pages of others' entries, lines of checkpoints, text."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.deltas.vectors import Message, columns, delta
from tests.deltas.wire import Answer, Deltas, fresh, hlcs
from tests.harness.server import HOST
from tests.harness.together import eventually

PATIENCE_SECONDS = 25.0


def push(deltas: Deltas, gateway: str, made: list[Message], client: str, cursor: int = 0) -> Answer:
    """A push in the plain dialect."""
    body = {"clientId": client, "deltas": made, "cursor": str(cursor)}
    return deltas.post(f"/v1/sync/{gateway}/push", body)


def pull(deltas: Deltas, gateway: str, since: int, client: str, *, expect: int = 200, **more: Any) -> Answer:
    """A pull in the plain dialect."""
    query = urlencode({"dialect": "plain", "since": since, "clientId": client, **more})
    return deltas.call("GET", f"/v1/sync/{gateway}/pull?{query}", expect=expect)


def lines_of(deltas: Deltas, gateway: str, client: str) -> list[Message]:
    """The lines of a checkpoint in the plain dialect."""
    response = deltas.send("GET", f"/v1/sync/{gateway}/checkpoint?dialect=plain&clientId={client}")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/x-ndjson")
    lines: list[Message] = [json.loads(line) for line in response.content.splitlines()]
    assert [line["hasMore"] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert {line["serverHlc"] for line in lines} == {response.headers["X-Checkpoint-Hlc"]}
    return lines


def told(answer: Message) -> list[tuple[str, str, dict[str, Any]]]:
    """Operation, row and columns of the entries of an answer."""
    return [
        (entry["op"], entry["rowId"], {one["column"]: one["value"] for one in entry["columns"]})
        for entry in answer["deltas"]
    ]


def test_g6_the_answer_of_a_push_says_what_others_have_won(one: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    times = [next(hlc) for _ in range(8)]
    first = push(one, gateway, [delta("INSERT", columns(a=1, b=1), row="r", client="x", hlc=times[4])], "x")
    assert (first["settled"], first["deltas"], first["epoch"]) == (1, [], 0)
    assert first["cursor"] == first["serverHlc"], "nobody else has written"
    late = [
        delta("UPDATE", columns(a=2, c=2), row="r", client="y", hlc=times[2]),
        delta("INSERT", columns(a=2), row="own", client="y", hlc=times[3]),
    ]
    for duplicates in (0, 2):
        answer = push(one, gateway, late, "y")
        assert told(answer) == [("UPDATE", "r", {"a": 1})]
        assert {entry["position"] for entry in answer["deltas"]} == {answer["serverHlc"]}
        assert (answer["duplicates"], answer["settled"], answer["cursor"]) == (duplicates, 2, "0")
    assert told(push(one, gateway, [delta("DELETE", row="r", client="y", hlc=times[1])], "y")) == [
        ("INSERT", "r", {"a": 1, "b": 1, "c": 2})
    ]
    push(one, gateway, [delta("DELETE", row="r", client="x", hlc=times[7])], "x")
    lost = delta("UPDATE", columns(b=3), row="r", client="y", hlc=times[6])
    assert told(push(one, gateway, [lost], "y")) == [("DELETE", "r", {})]


def test_g6_a_cursor_moves_with_a_push_only_past_own_entries(one: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    mine = push(one, gateway, [delta("INSERT", columns(a=1), row="1", client="x", hlc=next(hlc))], "x")
    cursor = int(mine["cursor"])
    assert cursor == mine.hlc
    other = push(one, gateway, [delta("INSERT", columns(a=1), row="2", client="y", hlc=next(hlc))], "y", cursor)
    assert int(other["cursor"]) == other.hlc > cursor
    again = push(one, gateway, [delta("INSERT", columns(a=1), row="3", client="x", hlc=next(hlc))], "x", cursor)
    assert int(again["cursor"]) == cursor < again.hlc
    page = pull(one, gateway, cursor, "x", ownAfter=int(mine["first"]) - 1)
    assert told(page) == [("INSERT", "2", {"a": 1})]
    beyond = push(one, gateway, [], "x", again.hlc + 1_000)
    assert int(beyond["cursor"]) == again.hlc + 1_000, "a cursor that nobody was given does not move"


def test_g6_own_entries_are_left_out_behind_a_position(one: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    made = [delta("INSERT", columns(n=number), row=f"x{number}", client="x", hlc=next(hlc)) for number in range(3)]
    *_, last = [push(one, gateway, [each], "x") for each in made]
    push(one, gateway, [delta("INSERT", columns(n=9), row="y", client="y", hlc=next(hlc))], "y")
    rows = [row for _, row, _ in told(pull(one, gateway, 0, "x"))]
    assert rows == ["x0", "x1", "x2", "y"]
    rows = [row for _, row, _ in told(pull(one, gateway, 0, "x", ownAfter=int(last["first"]) - 1))]
    assert rows == ["x0", "x1", "y"]
    page = pull(one, gateway, 0, "x", ownAfter=0, limit=1)
    assert (told(page), page["hasMore"]) == ([("INSERT", "y", {"n": 9})], False)
    positions = [int(entry["position"]) for entry in pull(one, gateway, 0, "z")["deltas"]]
    assert positions == sorted(set(positions))


def test_g6_a_checkpoint_has_live_rows_and_is_there_without_any(one: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    [nothing] = lines_of(one, gateway, "x")
    assert (nothing["serverHlc"], nothing["deltas"], nothing["epoch"]) == ("0", [], 0)
    push(one, gateway, [delta("INSERT", columns(a=1), row="half \ud800", client="x", hlc=next(hlc))], "x")
    push(one, gateway, [delta("INSERT", columns(a=1), row="gone", client="x", hlc=next(hlc))], "x")
    answer = push(one, gateway, [delta("DELETE", row="gone", client="x", hlc=next(hlc))], "x")
    *rows, end = lines_of(one, gateway, "x")
    assert [entry for line in rows for entry in told(line)] == [("INSERT", "half \ud800", {"a": 1})]
    assert int(end["serverHlc"]) == answer.hlc
    assert pull(one, gateway, answer.hlc, "x")["deltas"] == []


def test_g6_a_cursor_that_was_never_given_is_refused(one: Deltas) -> None:
    gateway = fresh("gw")
    assert pull(one, gateway, 5, "x", expect=410).code == "CURSOR_EXPIRED"
    answer = push(one, gateway, [delta("INSERT", columns(a=1), client="x")], "x")
    assert pull(one, gateway, answer.hlc, "x")["serverHlc"] == str(answer.hlc)
    assert pull(one, gateway, answer.hlc + 1, "x", expect=410).code == "CURSOR_EXPIRED"


@pytest.mark.parametrize("more", [{"dialect": "other"}, {"ownAfter": "x"}, {"ownAfter": "-1"}], ids=str)
def test_g6_queries_that_are_wrong(one: Deltas, more: dict[str, str]) -> None:
    assert pull(one, fresh("gw"), 0, "x", expect=400, **more).code == "VALIDATION_ERROR"


@pytest.mark.parametrize("cursor", [5, "x", "-1", True, {}])
def test_g6_cursors_that_are_none(one: Deltas, cursor: object) -> None:
    body = {"clientId": "x", "deltas": [], "cursor": cursor}
    assert one.post(f"/v1/sync/{fresh('gw')}/push", body, expect=400).code == "VALIDATION_ERROR"


def test_g6_both_dialects_in_one_gateway_end_alike(deltas: Deltas) -> None:
    """A client that believes what it is sent is told of a plain one's writes as of any others."""
    gateway, hlc = fresh("gw"), hlcs()
    deltas.push(gateway, [delta("INSERT", columns(a=1, b=1), row="r", client="lake", hlc=next(hlc))], client="lake")
    push(deltas, gateway, [delta("UPDATE", columns(a=2), row="r", client="x", hlc=next(hlc))], "x")
    pushed = deltas.push(gateway, [delta("UPDATE", columns(b=3), row="r", client="lake", hlc=next(hlc))], client="lake")
    page = deltas.pull(gateway, pushed.hlc, client="lake")
    assert ("UPDATE", "r", {"a": 2}) in told(page)
    assert {name: value for _, _, cells in told(page) for name, value in cells.items()} == {"a": 2, "b": 3}
    assert told(pull(deltas, gateway, 0, "x", ownAfter=0))[-1] == ("UPDATE", "r", {"b": 3})
    [line, _] = lines_of(deltas, gateway, "new")
    assert told(line) == [("INSERT", "r", {"a": 2, "b": 3})]


def frame(client: str, since: int, **more: Any) -> str:
    return json.dumps({"clientId": client, "since": str(since), **more})


def test_g6_over_websocket_others_entries_come_as_text_and_own_ones_do_not(deltas: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    answer = push(deltas, gateway, [delta("INSERT", columns(a=1), row="0", client="x", hlc=next(hlc))], "x")
    url = f"ws://{HOST}:{deltas.nodes[0].port}/v1/sync/{gateway}/ws"
    with connect(url, open_timeout=PATIENCE_SECONDS) as socket:
        socket.send(frame("y", 0))
        page = json.loads(socket.recv(PATIENCE_SECONDS))
        assert (told(page), page["hasMore"]) == ([("INSERT", "0", {"a": 1})], False)
        since = int(page["serverHlc"])
        assert since == answer.hlc
        for number in range(1, 4):
            push(deltas, gateway, [delta("INSERT", columns(a=1), row="own", client="y", hlc=next(hlc))], "y")
            push(deltas, gateway, [delta("INSERT", columns(a=1), row=f"{number}", client="x", hlc=next(hlc))], "x")
            page = json.loads(socket.recv(PATIENCE_SECONDS))
            assert told(page) == [("INSERT", f"{number}", {"a": 1})]
            assert int(page["serverHlc"]) > since
            since = int(page["serverHlc"])
    eventually(lambda: pull(deltas, gateway, since, "y", ownAfter=0)["deltas"] == [], "the last page was the last")


WRONG = ["", "x", "[]", "{}", '{"clientId":"x"}', '{"clientId":"x","since":5}', '{"clientId":"","since":"0"}']
WRONG += ['{"clientId":"x","since":"0","limit":0}', '{"clientId":"x","since":"0","limit":true}']
WRONG += ['{"clientId":"x","since":"0","ownAfter":1}', '{"clientId":"x","since":"0","since":"1"}']


@pytest.mark.parametrize("text", WRONG)
def test_g6_text_that_is_no_pull_ends_the_connection(one: Deltas, text: str) -> None:
    with connect(f"ws://{HOST}:{one.server.port}/v1/sync/{fresh('gw')}/ws") as socket:
        socket.send(text)
        with pytest.raises(ConnectionClosed, match="1002"):
            socket.recv(PATIENCE_SECONDS)


def test_g6_a_cursor_that_is_refused_over_websocket_says_so(one: Deltas) -> None:
    with connect(f"ws://{HOST}:{one.server.port}/v1/sync/{fresh('gw')}/ws") as socket:
        socket.send(frame("x", 5))
        with pytest.raises(ConnectionClosed, match=r"1008.*CURSOR_EXPIRED"):
            socket.recv(PATIENCE_SECONDS)
