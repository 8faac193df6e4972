"""Checkpoints: what is in them, from one instant, whoever reads how slowly, and where one goes on from there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from tests.deltas.binary.caller import joined, read_response
from tests.deltas.binary.readers import slow_reader
from tests.deltas.vectors import Message, columns, delta
from tests.deltas.wire import Deltas, fresh, hlcs

STREAM = "application/x-lakesync-checkpoint-stream"


class Snapshot:
    """A checkpoint as a client reads it."""

    def __init__(self, deltas: Deltas, gateway: str, client: str) -> None:
        response = deltas.send("GET", path(gateway, client), headers={"Accept": STREAM})
        assert response.status_code == 200, response.content
        assert response.headers["Content-Type"] == STREAM
        assert response.headers["API-Version"] == "v1"
        self.cursor = int(response.headers["X-Checkpoint-Hlc"])
        self.frames = [read_response(frame) for frame in frames_of(response.content)]

    @property
    def entries(self) -> list[Message]:
        return [entry for frame in self.frames for entry in frame.deltas]

    @property
    def rows(self) -> dict[tuple[str, str], Message]:
        """What a client has that applies it."""
        assert all(entry["op"] == "INSERT" for entry in self.entries)
        rows = {(entry["table"], entry["rowId"]): cells_of(entry) for entry in self.entries}
        assert len(rows) == len(self.entries)
        return rows


def path(gateway: str, client: str) -> str:
    return f"/v1/sync/{gateway}/checkpoint?clientId={client}"


def frames_of(stream: bytes) -> Iterator[bytes]:
    """Each frame stands behind its length."""
    place = 0
    while place < len(stream):
        length = int.from_bytes(stream[place : place + 4], "big")
        frame = stream[place + 4 : place + 4 + length]
        assert len(frame) == length
        yield frame
        place += 4 + length


def cells_of(entry: Message) -> Message:
    return {one["column"]: one["value"] for one in entry["columns"] if one["value"] is not None}


def test_rows_as_they_are(deltas: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    deltas.push(
        gateway,
        [
            delta("INSERT", columns(a=1, b="\u00e9", c=None), row="r1", hlc=next(hlc)),
            delta("INSERT", columns(a=1), row="gone", hlc=next(hlc)),
            last := delta("UPDATE", columns(a=2), row="r1", hlc=next(hlc)),
            delta("DELETE", row="gone", hlc=next(hlc)),
            delta("INSERT", columns(x={"y": [1.5]}), row="\u884c/1", table="notes", hlc=next(hlc)),
        ],
    )
    snapshot = Snapshot(deltas, gateway, "b")
    assert snapshot.rows == deltas.rows(gateway)
    assert {entry["rowId"]: entry["deltaId"] for entry in snapshot.entries}["r1"] == last["deltaId"]
    assert [frame.has_more for frame in snapshot.frames][-1] is False
    assert {frame.hlc for frame in snapshot.frames} == {snapshot.cursor}
    assert deltas.pull(gateway, snapshot.cursor, client="b")["deltas"] == []
    deltas.push(gateway, [delta("UPDATE", columns(a=3), row="r1", hlc=next(hlc))])
    assert [cells_of(entry) for entry in deltas.log(gateway, snapshot.cursor, client="b")] == [{"a": 3}]


def test_a_client_that_begins_with_one_goes_on_as_if_it_had_pulled(one: Deltas) -> None:
    """When it has pulled behind it, its first push is not answered with everything once more."""
    gateway, hlc = fresh("gw"), hlcs()
    one.push(gateway, [delta("INSERT", columns(a=1), row="r1", hlc=next(hlc))])
    assert one.pull(gateway, Snapshot(one, gateway, "b").cursor, client="b")["deltas"] == []
    cursor = one.push(gateway, [delta("INSERT", columns(a=1), row="r2", client="b", hlc=next(hlc))], client="b").hlc
    assert one.pull(gateway, cursor, client="b")["deltas"] == []
    with joined(one.server.port, gateway, "b") as line:
        line.pull(cursor)
        one.push(gateway, [delta("INSERT", columns(a=1), row="r3", hlc=next(hlc))])
        assert [entry["rowId"] for entry in line.broadcast().deltas] == ["r3"]


@pytest.mark.parametrize("query", ["", "?clientId=client-a", "?clientId=new"], ids=["nobody", "writer", "new"])
def test_g6_for_those_who_may_have_rows_each_comes_behind_a_delete(one: Deltas, query: str) -> None:
    """A LakeSync client does not say who it is, and may have pushed before."""
    gateway, hlc = fresh("gw"), hlcs()
    made = [delta("INSERT", columns(a=1), row=row, hlc=next(hlc)) for row in ("gone", "live")]
    one.push(gateway, [*made, delta("DELETE", row="gone", hlc=next(hlc))])
    response = one.send("GET", f"/v1/sync/{gateway}/checkpoint{query}")
    entries = [entry for frame in frames_of(response.content) for entry in read_response(frame).deltas]
    anew = [("DELETE", "gone"), ("DELETE", "live"), ("INSERT", "live")]
    expected = [("INSERT", "live")] if "new" in query else anew
    assert [(entry["op"], entry["rowId"]) for entry in entries] == expected


@pytest.mark.parametrize("query", ["?clientId=", "?clientId=a&clientId=b", f"?clientId={'x' * 257}"])
def test_a_client_that_cannot_be(one: Deltas, query: str) -> None:
    gateway = fresh("gw")
    one.push(gateway, [delta("INSERT", columns(a=1))])
    assert one.call("GET", f"/v1/sync/{gateway}/checkpoint{query}", expect=400).code == "VALIDATION_ERROR"


def test_a_row_that_has_no_binary_form_is_left_to_the_pull(one: Deltas) -> None:
    gateway = fresh("gw")
    one.push(gateway, [delta("INSERT", columns(a=1), row="half \ud800")])
    assert one.call("GET", path(gateway, "b"), expect=404).code == "NOT_FOUND"
    assert len(one.log(gateway)) == 1
    with joined(one.server.port, gateway, "b") as line:
        line.send(b"\x02\x0a\x01b")
        assert line.ending()[0] == 1008


def test_rules_hold_for_checkpoints(one: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    shown = {"name": "shown", "tables": ["todos"], "filters": [{"column": "n", "op": "gt", "value": "1"}]}
    one.post(f"/v1/admin/sync-rules/{gateway}", {"version": 1, "buckets": [shown]})
    made = [delta("INSERT", columns(n=number), row=f"r{number}", hlc=next(hlc)) for number in range(4)]
    other = delta("INSERT", columns(n=9), row="x", table="notes", hlc=next(hlc))
    one.push(gateway, [*made, other, delta("UPDATE", columns(n=0), row="r3", hlc=next(hlc))])
    assert [entry["rowId"] for entry in Snapshot(one, gateway, "b").entries] == ["r2"]


@pytest.fixture(scope="module")
def large(one: Deltas) -> str:
    """A gateway of several megabytes."""
    gateway, hlc = fresh("gw"), hlcs()
    for batch in range(14):
        made = [delta("INSERT", columns(text="x" * 500_000), row=f"large{batch}", hlc=next(hlc))]
        made += [delta("INSERT", columns(n=batch), row=f"{batch}-{number}", hlc=next(hlc)) for number in range(100)]
        one.push(gateway, made)
    return gateway


def test_a_large_one_comes_in_frames(one: Deltas, large: str) -> None:
    snapshot = Snapshot(one, large, fresh("reader"))
    assert len(snapshot.entries) == 14 * 101
    assert len(snapshot.frames) > 10
    assert [frame.has_more for frame in snapshot.frames] == [True] * (len(snapshot.frames) - 1) + [False]
    assert snapshot.rows == one.rows(large)


def test_a_slow_reader_holds_nothing_up(one: Deltas, large: str) -> None:
    with slow_reader(one, path(large, fresh("reader"))) as response:
        begun = response.read(10_000)
        late = delta("INSERT", columns(n=1), row="late", hlc=next(hlcs()))
        one.push(large, [late])
        assert one.post(f"/v1/admin/flush/{large}", {}).body == {"flushed": True}
        rest = begun + response.read()
    entries = [entry for frame in frames_of(rest) for entry in read_response(frame).deltas]
    assert len(entries) == 14 * 101
    assert late["deltaId"] not in [entry["deltaId"] for entry in entries]
    assert late["deltaId"] in one.pull(large, int(response.headers["X-Checkpoint-Hlc"])).ids


@pytest.mark.each_store
def test_each_is_of_one_instant(deltas: Deltas) -> None:
    """A push changes all rows together: no checkpoint shows some of them changed."""
    gateway, hlc = fresh("gw"), hlcs()
    rows = [f"r{number}" for number in range(150)]

    def push(number: int) -> None:
        deltas.push(gateway, [delta("UPDATE", columns(n=number), row=row, hlc=next(hlc)) for row in rows])

    push(0)
    stop = threading.Event()

    def write() -> None:
        for number in count(1):
            if stop.is_set():
                return
            push(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        snapshots = [(name, Snapshot(deltas, gateway, name)) for name in (fresh("reader") for _ in range(8))]
    finally:
        stop.set()
        writer.join()
    for name, snapshot in snapshots:
        assert len(snapshot.entries) == len(rows)
        assert len({cells_of(entry)["n"] for entry in snapshot.entries}) == 1
        held = snapshot.rows
        for entry in deltas.log(gateway, snapshot.cursor, client=name):
            held[entry["table"], entry["rowId"]] |= cells_of(entry)
        assert held == deltas.rows(gateway)


def test_nothing_is_left_in_the_folder(one: Deltas) -> None:
    gateway = fresh("gw")
    one.push(gateway, [delta("INSERT", columns(x=1))])
    Snapshot(one, gateway, "b")
    assert {path.name.partition(".")[0] for path in one.nodes[0].data.iterdir()} <= {"semel", "logs"}
