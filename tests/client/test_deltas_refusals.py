"""What a replica does with every way in which a push or a pull can fail: set aside, keep and raise, or try again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from semel.client import (
    AccessError,
    BadAnswerError,
    BusyError,
    ClockSkewError,
    CursorExpiredError,
    DeadLetter,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknown,
    Patience,
    RefusedError,
    SemelError,
    TooLargeError,
)
from semel.kernel.hlc import wall_of
from tests.client.deltas_script import ClientRequest, Says, Script, Scripted, entry, page, play, refused, taken
from tests.client.replica_kinds import Opened

pytestmark = pytest.mark.usefixtures("each_kind")


def write(db: Opened, rows: int) -> list[str]:
    """Rows 0 to n, in one transaction; the names of their deltas."""
    with db.transaction():
        return [db.insert("todos", str(number), {"n": number}) for number in range(rows)]


def is_poison(delta: dict[str, Any]) -> bool:
    return delta["rowId"] in ("3", "77", "78", "120")


def named(request: ClientRequest) -> Says:
    """Refuses as the server does: it says which."""
    bad = [(index, one) for index, one in enumerate(request.deltas) if is_poison(one)]
    details = [
        {"index": index, "deltaId": one["deltaId"], "code": "SCHEMA_ERROR", "message": "no such column"}
        for index, one in bad
    ]
    return refused(422, "SCHEMA_ERROR", details=details) if bad else taken(request)


def unnamed(request: ClientRequest) -> Says:
    """Refuses without a word about which."""
    return refused(400, "VALIDATION_ERROR") if any(map(is_poison, request.deltas)) else taken(request)


def misnamed(request: ClientRequest) -> Says:
    """Names deltas that were not sent."""
    details = [{"index": 0, "deltaId": "f" * 64}, {"index": 10_000}, {"index": -1}, {"index": True}, None, 7]
    is_bad = any(map(is_poison, request.deltas))
    return refused(400, "VALIDATION_ERROR", details=details) if is_bad else taken(request)


def too_large(request: ClientRequest) -> Says:
    """Takes no batch of more than forty, and no poison."""
    is_bad = len(request.deltas) > 40 or any(map(is_poison, request.deltas))
    return refused(413, "VALIDATION_ERROR") if is_bad else taken(request)


@pytest.mark.parametrize("script", [named, unnamed, misnamed, too_large], ids=lambda script: script.__name__)
def test_exactly_the_poison_is_set_aside(script: Script, tmp_path: Path) -> None:
    told: list[DeadLetter] = []

    async def scene(db: Opened, server: Scripted) -> None:
        names = write(db, 150)
        pushed = await db.push()
        assert pushed.accepted == 146
        assert [letter.row_id for letter in pushed.dead] == ["3", "77", "78", "120"]
        assert list(pushed.dead) == told == db.dead()
        assert pushed.dead[0].delta_id == names[3]
        assert pushed.dead[0].status in (400, 413, 422)
        assert pushed.dead[0].message
        assert db.pending() == []
        assert db.get("todos", "3") is None
        assert db.get("todos", "4") == {"n": 4}
        rows = [
            delta["rowId"] for request in server.pushes if script(request).status == 200 for delta in request.deltas
        ]
        assert rows == [str(number) for number in range(150) if number not in (3, 77, 78, 120)], "out of order"

    play(tmp_path, script, scene, on_dead=told.append)


def test_dead_letters_come_back_or_go(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        names = write(db, 5)
        db.update("todos", "3", {"later": True})
        await db.push()
        assert [letter.delta_id for letter in db.dead()] == [names[3], db.dead()[1].delta_id]
        db.discard_dead(db.dead()[1].delta_id)
        server.script = taken
        db.insert("todos", "5", {})
        db.retry_dead(names[3])
        assert (db.dead(), db.get("todos", "3")) == ([], {"n": 3})
        assert db.pending()[0].delta_id == names[3], "it has lost its place"
        before = next(one for one in server.pushes[0].deltas if one["rowId"] == "3")
        await db.push()
        assert server.pushes[-1].deltas[0] == before
        for unknown in (names[3], "f" * 64):
            with pytest.raises(KeyError):
                db.retry_dead(unknown)
            with pytest.raises(KeyError):
                db.discard_dead(unknown)

    play(tmp_path, named, scene)


KEPT: dict[str, tuple[Script, type[SemelError]]] = {
    "a wrong token": (lambda _: refused(401, "AUTH_ERROR"), AccessError),
    "another's token": (lambda _: refused(403, "FORBIDDEN", details=[{"index": 0}]), AccessError),
    "no such gateway": (lambda _: refused(404, "NOT_FOUND"), NotFoundError),
    "too often": (lambda _: refused(429, "RATE_LIMITED"), BusyError),
    "no room": (lambda _: refused(503, "BACKPRESSURE_ERROR"), BusyError),
    "unknown": (lambda _: refused(503, "OUTCOME_UNKNOWN"), OutcomeUnknown),
    "a fault": (lambda _: refused(500, "INTERNAL_ERROR"), OutcomeUnknown),
    "everything is refused": (lambda _: refused(400, "VALIDATION_ERROR"), InvalidRequestError),
    "a proxy refuses": (lambda _: Says(400, b"<html>"), InvalidRequestError),
    "a proxy finds it too large": (lambda _: Says(413, b"<html>"), TooLargeError),
    "a proxy has a conflict": (lambda _: Says(409, b"{}"), RefusedError),
    "not ours": (lambda _: Says(200, b"hello"), OutcomeUnknown),
    "not all": (lambda _: Says(200, {"serverHlc": "1", "accepted": 0, "duplicates": 0}), OutcomeUnknown),
    "no time": (lambda _: Says(200, {"serverHlc": 1, "accepted": 2, "duplicates": 0}), OutcomeUnknown),
}


@pytest.mark.parametrize(("script", "kind"), KEPT.values(), ids=KEPT)
def test_what_is_not_the_deltas_fault_keeps_them(script: Script, kind: type[SemelError], tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        names = write(db, 2)
        with pytest.raises(kind) as raised:
            await db.push()
        assert "Bearer" not in str(raised.value)
        pending = db.pending()
        assert [one.delta_id for one in pending] == names
        assert (db.dead(), len(db.rows("todos"))) == ([], 2)
        assert pending[0].tries
        assert pending[0].error
        is_unsettled = not isinstance(raised.value, RefusedError) or raised.value.is_unsettled
        assert pending[0].is_sent is is_unsettled
        first = server.pushes[0].deltas
        server.script = taken
        assert (await db.push()).accepted == 2
        assert server.pushes[-1].deltas == first

    play(tmp_path, script, scene)


def test_once_in_doubt_always_in_doubt(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        write(db, 1)
        for code, kind in (("OUTCOME_UNKNOWN", OutcomeUnknown), ("BACKPRESSURE_ERROR", BusyError)):
            server.script = lambda _, code=code: refused(503, code)  # type: ignore[misc]
            with pytest.raises(kind):
                await db.push()
            assert db.pending()[0].is_sent
        assert db.pending()[0].tries == 2

    play(tmp_path, taken, scene)


def test_retry_after_is_honoured(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        write(db, 1)
        answers = iter([Says(429, {"error": "No.", "code": "RATE_LIMITED"}, {"Retry-After": "1"})])
        server.script = lambda request: next(answers, None) or taken(request)
        began = time.monotonic()
        assert (await db.push()).accepted == 1
        assert time.monotonic() - began >= 1.0
        assert len(server.pushes) == 2

    play(tmp_path, taken, scene, patience=Patience())


def late(request: ClientRequest) -> Says:
    """Rows from 4 on are dated too late for it."""
    details = [
        {"index": index, "deltaId": one["deltaId"], "code": "CLOCK_DRIFT", "message": "ahead"}
        for index, one in enumerate(request.deltas)
        if int(one["rowId"]) >= 4
    ]
    is_late = refused(409, "CLOCK_DRIFT", details=details, serverHlc=str(1_000_000 << 16))
    return is_late if details else taken(request)


def late_unnamed(request: ClientRequest) -> Says:
    """The same without details."""
    said = late(request)
    return said if said.status == 200 else refused(409, "CLOCK_DRIFT", serverHlc=str(1_000_000 << 16))


@pytest.mark.parametrize("script", [late, late_unnamed], ids=lambda script: script.__name__)
def test_a_wrong_clock_keeps_what_is_dated_too_late(script: Script, tmp_path: Path) -> None:
    clock = [1_000_000]

    async def scene(db: Opened, server: Scripted) -> None:
        write(db, 4)
        clock[0] = 3_000_000
        for number in range(4, 10):
            db.insert("todos", str(number), {"n": number})
        with pytest.raises(ClockSkewError) as raised:
            await db.sync()
        assert raised.value.skew_ms == 2_000_000
        pending = db.pending()
        assert [one.row_id for one in pending] == ["4", "5", "6", "7", "8", "9"]
        assert (db.dead(), len(db.rows("todos"))) == ([], 10)
        assert not server.asked[-1].is_push, "nothing was pulled"
        clock[0] = 1_000_500
        db.update("todos", "9", {"n": 9.0, "m": 1})
        assert db.restamp() == 7
        *again, last = db.pending()
        assert last.hlc == again[-1].hlc + 1
        assert [one.row_id for one in again] == [one.row_id for one in pending]
        assert not {one.delta_id for one in again} & {one.delta_id for one in pending}
        assert [one.hlc for one in again] == sorted({one.hlc for one in again})
        assert [wall_of(one.hlc) for one in again] == [1_000_500] * 6
        assert db.restamp() == 0
        server.script = lambda request: taken(request) if request.is_push else page(1_000)
        assert (await db.push()).accepted == 7
        assert db.get("todos", "9") == {"n": 9, "m": 1}

    def both(request: ClientRequest) -> Says:
        return script(request) if request.is_push else page(0)

    play(tmp_path, both, scene, wall_ms=lambda: clock[0])


def test_a_cursor_that_is_refused_again_and_again_is_told(tmp_path: Path) -> None:
    """Here there is no checkpoint, and the log is not given from its beginning either."""

    async def scene(db: Opened, server: Scripted) -> None:
        await db.pull()
        mine = db.insert("todos", "2", {"n": 2})
        server.script = lambda _: refused(410, "CURSOR_EXPIRED")
        with pytest.raises(CursorExpiredError):
            await db.pull()
        db.start_over()
        assert db.rows("todos") == {"2": {"n": 2}}
        assert [one.delta_id for one in db.pending()] == [mine]
        server.script = lambda _: page(9, entry("1", 8, n=5))
        await db.pull()
        assert db.rows("todos") == {"1": {"n": 5}, "2": {"n": 2}}
        assert [request.target.split("since=")[1].split("&")[0] for request in server.asked] == [
            "0",
            "7",
            "0",
            "0",
            "0",
        ]

    play(tmp_path, lambda _: page(7, entry("1", 5, n=1)), scene)


BAD_PAGES: dict[str, Says] = {
    "not ours": Says(200, b"hello"),
    "no entries": Says(200, {"serverHlc": "9", "hasMore": False}),
    "no more": Says(200, {"deltas": [], "serverHlc": "9"}),
    "a number for a time": Says(200, {"deltas": [], "serverHlc": 9, "hasMore": False}),
    "a huge time": page(2**64),
    "back in time": page(6),
    "no way forward": page(7, has_more=True),
    "a strange operation": page(9, entry("2", 8, "UPSERT")),
    "a strange table": page(9, {**entry("2", 8), "table": "a b"}),
    "a strange column": page(9, {**entry("2", 8), "columns": [{"column": "a b", "value": 1}]}),
    "a row without a name": page(9, {**entry("2", 8), "rowId": None}),
    "an entry that is none": Says(200, {"deltas": [7], "serverHlc": "9", "hasMore": False}),
}


@pytest.mark.parametrize("said", BAD_PAGES.values(), ids=BAD_PAGES)
def test_a_page_that_is_none_leaves_no_trace(said: Says, tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        await db.pull()
        server.script = lambda _: said
        with pytest.raises(BadAnswerError):
            await db.pull()
        assert db.rows("todos") == {"1": {"n": 1}}
        server.script = lambda request: page(9, entry("2", 8, n=2)) if "since=7&" in request.target else page(0)
        await db.pull()
        assert db.rows("todos") == {"1": {"n": 1}, "2": {"n": 2}}

    play(tmp_path, lambda _: page(7, entry("1", 5, n=1)), scene)


def test_a_page_that_comes_after_a_new_beginning_is_dropped(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        def script(request: ClientRequest) -> Says:
            if "since=0&" in request.target:
                return page(7, entry("1", 5, n=1))
            db.start_over()  # while the answer is on its way
            return page(9, entry("2", 8, n=2))

        await db.pull()
        server.script = script
        pulled = await db.pull()
        assert (pulled.entries, db.rows("todos")) == (1, {"1": {"n": 1}})

    play(tmp_path, lambda _: page(7, entry("1", 5, n=1)), scene)


def test_another_token_is_used_from_then_on(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        write(db, 1)
        with pytest.raises(AccessError):
            await db.push()
        db.use_token("new")
        assert (await db.push()).accepted == 1
        assert "old" not in repr(vars(db))

    def script(request: ClientRequest) -> Says:
        return taken(request) if request.authorization == "Bearer new" else refused(401, "AUTH_ERROR")

    play(tmp_path, script, scene, token="old")


def test_a_push_ends_although_more_is_written(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        def script(request: ClientRequest) -> Says:
            db.insert("todos", f"{len(server.pushes)}-more", {})
            return taken(request)

        server.script = script
        write(db, 150)
        assert (await db.push()).accepted == 150
        assert [one.row_id for one in db.pending()] == ["1-more", "2-more"]

    play(tmp_path, taken, scene)
