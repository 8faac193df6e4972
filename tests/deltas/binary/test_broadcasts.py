"""What a connected client is told without asking: by whom, from when on, and what counts as told."""

from __future__ import annotations

import httpx
import pytest

from tests.deltas.binary.caller import BROADCAST, Line, Socket, joined
from tests.deltas.peers import rows_in
from tests.deltas.vectors import Message, columns, delta
from tests.deltas.wire import Deltas, fresh, hlcs
from tests.harness.together import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.each_store


class Writer:
    """Makes deltas of one client, each later than the last of any."""

    def __init__(self) -> None:
        self._hlcs = hlcs()

    def insert(self, client: str, row: str, **cells: object) -> Message:
        return delta("INSERT", columns(**cells), row=row, client=client, hlc=next(self._hlcs))

    def update(self, client: str, row: str, **cells: object) -> Message:
        return delta("UPDATE", columns(**cells), row=row, client=client, hlc=next(self._hlcs))


@pytest.fixture
def write() -> Writer:
    return Writer()


def is_quiet(line: Socket) -> bool:
    """Whether nothing is broadcast; the answer to a question shows that what could come has come."""
    line.pull()
    return not line.heard


def given(deltas: Deltas) -> int:
    """How many entries have certainly reached clients of the first node."""
    figures = httpx.get(f"{deltas.nodes[0].url}/metrics").json()
    return int(figures.get("semel_deltas_entries_given_total", 0))


def test_others_are_told_on_every_node(deltas: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    first, last = deltas.nodes[0].port, deltas.nodes[-1].port
    with joined(first, gateway, "a") as a, joined(last, gateway, "b") as b:
        a.pull()
        b.pull()
        mine, yours, third = write.insert("a", "r1", x=1), write.insert("b", "r2", x=2), write.insert("c", "r3", x=3)
        a.push(mine)
        told = b.broadcast()
        assert told.ids == [mine["deltaId"]]
        assert told.hlc >= int(mine["hlc"])
        assert not told.has_more
        b.push(yours)
        assert a.broadcast().ids == [yours["deltaId"]]
        deltas.push(gateway, [third], client="c")
        assert a.broadcast().ids == b.broadcast().ids == [third["deltaId"]]
        assert not a.heard
        assert not b.heard


def test_nothing_is_told_before_the_first_pull_has_come_to_the_end(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    one.push(gateway, [write.insert("b", f"r{number}", x=1) for number in range(3)], client="b")
    with joined(one.server.port, gateway, "a") as a:
        one.push(gateway, [write.insert("b", "r3", x=1)], client="b")
        a.push(write.insert("a", "mine", x=1))
        pages = [a.pull(0, 2)]
        one.push(gateway, [write.insert("b", "r4", x=1)], client="b")
        while pages[-1].has_more:
            pages.append(a.pull(pages[-1].hlc, 2))
        assert not a.heard
        told = [entry["rowId"] for page in pages for entry in page.deltas]
        assert told == ["r0", "r1", "r2", "r3", "mine", "r4"]
        assert len(pages) == 3
        one.push(gateway, [write.insert("b", "r5", x=1)], client="b")
        assert [entry["rowId"] for entry in a.broadcast().deltas] == ["r5"]


def test_what_was_committed_while_the_client_was_away_is_told_behind_its_cursor(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    with joined(one.server.port, gateway, "a") as a:
        cursor = a.pull().hlc
    one.push(gateway, [write.insert("b", "r1", x=1)], client="b")
    with joined(one.server.port, gateway, "a") as a:
        page = a.pull(cursor)
        assert [entry["rowId"] for entry in page.deltas] == ["r1"]
        one.push(gateway, [write.insert("b", "r2", x=1)], client="b")
        assert [entry["rowId"] for entry in a.broadcast().deltas] == ["r2"]


def test_the_cursor_of_a_broadcast_is_a_cursor(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    with joined(one.server.port, gateway, "a") as a:
        a.pull()
        one.push(gateway, [write.insert("b", "r1", x=1)], client="b")
        told = a.broadcast()
        assert a.pull(told.hlc).deltas == []
        one.push(gateway, [write.insert("b", "r2", x=1)], client="b")
        assert [entry["rowId"] for entry in a.broadcast().deltas] == ["r2"]
    assert [entry["rowId"] for entry in one.log(gateway, told.hlc, client="a")] == ["r2"]


def test_own_work_over_another_way_is_not_told(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    with joined(one.server.port, gateway, "a") as a:
        a.pull()
        one.push(gateway, [write.insert("a", "mine", x=1)], client="a")
        one.push(gateway, [write.insert("b", "yours", x=1)], client="b")
        assert [entry["rowId"] for entry in a.broadcast().deltas] == ["yours"]


def test_a_broadcast_that_arrived_is_not_given_again(deltas: Deltas, write: Writer) -> None:
    """The client pushes after it was told, takes the answer for its cursor, and pulls from there."""
    gateway = fresh("gw")
    with joined(deltas.nodes[0].port, gateway, "a") as a:
        cursor = a.pull().hlc
        for number in range(5):
            deltas.push(gateway, [write.insert("b", f"r{number}", x=1)], client="b")
            assert [entry["rowId"] for entry in a.broadcast().deltas] == [f"r{number}"]
            cursor = a.push(write.insert("a", f"mine{number}", x=1)).hlc
        assert a.pull(cursor).deltas == []
    assert deltas.pull(gateway, cursor, client="a")["deltas"] == []


def test_what_a_newcomer_was_told_is_remembered_when_it_leaves(deltas: Deltas, write: Writer) -> None:
    """Its only pull had nothing in it; it comes back, pushes first, and pulls from what that answered.

    Nothing is stored of one that has never pushed: a node knows of it by itself, and others tell it again.
    """
    gateway = fresh("gw")
    line, before = Line(deltas.nodes[0].port, gateway, "a"), given(deltas)
    line.pull()
    deltas.push(gateway, [write.insert("b", "r1", x=1)], client="b")
    assert [entry["rowId"] for entry in line.broadcast().deltas] == ["r1"]
    line.leave()
    eventually(lambda: given(deltas) > before, "what it was told is known")
    cursor = deltas.push(gateway, [write.insert("a", "mine", x=1)], client="a").hlc
    again = [] if len(deltas.nodes) == 1 else ["r1"]
    assert rows_in(deltas.pull(gateway, cursor, client="a")["deltas"]) == again


def test_a_broadcast_that_was_lost_is_given_again(deltas: Deltas, write: Writer) -> None:
    """It went out and nobody answered; the client comes back, pushes first, and pulls from what that answered."""
    gateway = fresh("gw")
    with Line.mute(deltas.nodes[0].port, gateway, "a") as mute:
        mute.pull()
        deltas.push(gateway, [write.insert("b", "r1", x=1)], client="b")
        assert [entry["rowId"] for entry in mute.broadcast().deltas] == ["r1"]
    cursor = deltas.push(gateway, [write.insert("a", "mine", x=1)], client="a").hlc
    assert rows_in(deltas.pull(gateway, cursor, client="a")["deltas"]) == ["r1"]


def test_one_broadcast_is_under_way_at_a_time(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    with Line.mute(one.server.port, gateway, "a") as mute:
        mute.pull()
        one.push(gateway, [write.insert("b", "r0", x=1)], client="b")
        assert [entry["rowId"] for entry in mute.broadcast().deltas] == ["r0"]
        for number in range(1, 4):
            one.push(gateway, [write.insert("b", f"r{number}", x=1)], client="b")
        mute.pong()
        assert [entry["rowId"] for entry in mute.broadcast().deltas] == ["r1", "r2", "r3"]


def test_what_was_pushed_before_the_broadcast_was_known_is_repaired(one: Deltas, write: Writer) -> None:
    """The client overwrites its own later value with what it is told: it has to be told the truth as well."""
    gateway = fresh("gw")
    one.push(gateway, [write.insert("b", "r1", title="old")], client="b")
    with Line.mute(one.server.port, gateway, "a") as mute:
        mute.pull()
        one.push(gateway, [write.update("b", "r1", title="of b")], client="b")
        assert mute.broadcast().deltas[0]["columns"] == columns(title="of b")
        # The push is sent before the pong: its author does not know of the broadcast yet.
        cursor = mute.push(write.update("a", "r1", title="of a")).hlc
        mute.pong()
        repair = mute.broadcast()
        assert [entry["op"] for entry in repair.deltas] == ["DELETE", "INSERT"]
        assert repair.deltas[-1]["columns"] == columns(title="of a")
        mute.pong()
        assert mute.pull(repair.hlc).deltas == []
        assert mute.pull(cursor).deltas[-1]["columns"] == columns(title="of a"), "the push's number stands for more"


def test_a_push_after_the_broadcast_was_known_needs_no_repair(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    one.push(gateway, [write.insert("b", "r1", title="old")], client="b")
    with Line.mute(one.server.port, gateway, "a") as mute:
        mute.pull()
        one.push(gateway, [write.update("b", "r1", title="of b")], client="b")
        mute.broadcast()
        mute.pong()
        cursor = mute.push(write.update("a", "r1", title="of a")).hlc
        assert mute.pull(cursor).deltas == []


def test_a_pull_that_crosses_a_broadcast_is_given_nothing(one: Deltas, write: Writer) -> None:
    """Its client is about to have the entries; who asks from elsewhere, or with them in hand, is given what it asks."""
    gateway = fresh("gw")
    one.push(gateway, [write.insert("b", "r0", x=1)], client="b")
    with Line.mute(one.server.port, gateway, "a") as mute:
        cursor = mute.pull().hlc
        one.push(gateway, [write.insert("b", "r1", x=1)], client="b")
        told = mute.broadcast()
        assert mute.pull(cursor) == ([], cursor, False)
        mute.pong()
        assert [entry["rowId"] for entry in mute.pull(cursor).deltas] == ["r1"]
        assert mute.pull(told.hlc).deltas == []
        one.push(gateway, [write.insert("b", "r2", x=1)], client="b")
        assert [entry["rowId"] for entry in mute.broadcast().deltas] == ["r2"]
        assert [entry["rowId"] for entry in mute.pull(0).deltas] == ["r0", "r1", "r2"]


def test_a_pull_from_a_broadcast_shows_that_it_has_arrived(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    with Line.mute(one.server.port, gateway, "a") as mute:
        mute.pull()
        one.push(gateway, [write.insert("b", "r1", x=1)], client="b")
        assert mute.pull(mute.broadcast().hlc).deltas == []
        cursor = mute.push(write.insert("a", "mine", x=1)).hlc
        assert mute.pull(cursor).deltas == []


def test_broadcasts_follow_the_rules(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    shown = {"name": "shown", "tables": [], "filters": [{"column": "shown", "op": "eq", "value": "true"}]}
    one.post(f"/v1/admin/sync-rules/{gateway}", {"version": 1, "buckets": [shown]})
    with joined(one.server.port, gateway, "a") as a:
        a.pull()
        one.push(gateway, [write.insert("b", "hidden", shown=False)], client="b")
        one.push(gateway, [write.insert("b", "r1", shown=True, x=1)], client="b")
        assert [entry["rowId"] for entry in a.broadcast().deltas] == ["r1"]
        one.push(gateway, [write.update("b", "r1", shown=False)], client="b")
        assert [(entry["rowId"], entry["op"]) for entry in a.broadcast().deltas] == [("r1", "DELETE")]
        one.push(gateway, [write.update("b", "hidden", shown=True)], client="b")
        [entry] = a.broadcast().deltas
        assert (entry["rowId"], entry["op"], entry["columns"]) == ("hidden", "INSERT", columns(shown=True))


def test_much_at_once_comes_in_several(one: Deltas, write: Writer) -> None:
    """More than may wait unsent, and a push of the client's own in between: its answer still stands for the rest."""
    gateway = fresh("gw")
    wanted = [f"r{number}" for number in range(6)]
    with Line.mute(one.server.port, gateway, "a") as mute:
        mute.pull()
        one.push(gateway, [write.insert("b", "r0", text="x" * 500_000)], client="b")
        pages = [mute.broadcast()]
        for name in wanted[1:]:
            one.push(gateway, [write.insert("b", name, text="x" * 500_000)], client="b")
        cursor = mute.push(write.insert("a", "mine", x=1)).hlc
        mute.pong()
        pages += [mute.broadcast()]
        assert pages[-1].has_more
        assert pages[-1].hlc < cursor
        mute.pong()
        lost = mute.broadcast()  # that it came shows that the one before is known to have arrived
    told = [entry["rowId"] for page in pages for entry in page.deltas]
    rest = rows_in(one.pull(gateway, cursor, client="a")["deltas"])
    assert lost.deltas[0]["rowId"] not in told
    assert rest == wanted, "what had arrived when it pushed is not known, so that all of it is told again"


def test_many_listeners_are_told_once_each(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    lines = []
    stack = [joined(one.server.port, gateway, f"reader{number}") for number in range(12)]
    try:
        for manager in stack:
            lines.append(manager.__enter__())  # noqa: PERF401 - each is closed by hand
        for line in lines:
            line.pull()
        wanted = [f"r{number}" for number in range(20)]
        for name in wanted:
            one.push(gateway, [write.insert("b", name, x=1)], client="b")
        for line in lines:
            told: list[str] = []
            while len(told) < len(wanted):
                told += [entry["rowId"] for entry in line.broadcast().deltas]
            assert told == wanted
            assert is_quiet(line)
    finally:
        for manager in stack[: len(lines)]:
            manager.__exit__(None, None, None)


def test_a_frame_says_that_it_is_a_broadcast(one: Deltas, write: Writer) -> None:
    gateway = fresh("gw")
    with joined(one.server.port, gateway, "a") as a:
        a.pull()
        one.push(gateway, [write.insert("b", "r1", x=1)], client="b")
        raw = a.connection.recv(PATIENCE_SECONDS)
        assert isinstance(raw, bytes)
        assert raw[:2] == BROADCAST + b"\x0a"
