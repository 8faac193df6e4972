"""A backup beside a server that is writing on all surfaces, restored elsewhere after the server was killed."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.backup.load import GATEWAY, TEXT, Acknowledged, Load
from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

WAYS = ("sqlite to sqlite", "sqlite to postgres", "postgres to sqlite")


def place(kind: str, folder: Path) -> str:
    return f"sqlite:{folder}" if kind == "sqlite" else fresh_url()


def read_stream(http: httpx.Client, offset: str) -> tuple[str, int]:
    """All content from an offset on, as a reader that obeys gets it, and how often the reader was sent back."""
    content, told = "", 0
    for _ in range(10_000):
        page = http.get("/v1/stream/log", params={"offset": offset})
        offset = page.headers["Stream-Next-Offset"]
        if page.status_code == 410:
            told += 1
            continue
        assert page.status_code == 200, page.text
        content += page.text
        if page.headers.get("Stream-Up-To-Date") == "true":
            return content, told
    raise AssertionError("there is no end")


def read_events(http: httpx.Client, since: int) -> httpx.Response:
    return http.get("/v1/events", params={"partition": "p", "since": since})


def event_ids(http: httpx.Client) -> list[int]:
    """The ids of all events, page by page."""
    ids: list[int] = []
    while page := read_events(http, ids[-1] if ids else 0).json()["events"]:
        ids += (one["committed_id"] for one in page)
    return ids


@pytest.mark.parametrize("way", WAYS)
def test_every_write_acknowledged_before_a_backup_is_restored_and_no_old_position_skips(
    way: str, tmp_path: Path
) -> None:
    source_kind, target_kind = way.split(" to ")
    source, target, file = place(source_kind, tmp_path / "a"), place(target_kind, tmp_path / "b"), tmp_path / "backup"
    semel = Semel("http://127.0.0.1:1")
    with RunningServer(tmp_path / "unused", env={"SEMEL_STORE": source}) as server:
        load = Load(server.url)
        with load.running():
            load.wait(40)
            began = time.monotonic()
            backup = semel("backup", str(file), "--store", source)
            assert backup.code == 0, backup.err
            load.wait(20)
        with httpx.Client(base_url=server.url, timeout=30) as http:
            pull = {"clientId": "reader", "since": "0", "limit": "100000"}
            lost_cursor = int(http.get(f"/v1/sync/{GATEWAY}/pull", params=pull).json()["serverHlc"])
        server.kill()
    assert semel("backup", "verify", str(file)).code == 0
    restored = semel("restore", str(file), "--store", target)
    assert restored.code == 0, restored.err
    with (
        RunningServer(tmp_path / "other", env={"SEMEL_STORE": target}) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        kept = check_replays(http, load, began)
        check_streams(http, load.done["streams"], kept["streams"])
        check_events(http, load.done["events"], kept["events"])
        check_deltas(http, load, lost_cursor)
        check_ledger(http, load)


def check_replays(http: httpx.Client, load: Load, began: float) -> dict[str, int]:
    """Retries of writes of before get their first answers; the number of writes of each surface that were restored."""
    for surface in load.surfaces:
        before = [one for one in load.done[surface.name] if one.at < began]
        assert len(before) >= 40
        for one in before:
            assert surface.write(http, one.number) == (one.answer, True), (surface.name, one)
    log = http.get("/v1/stream/log", params={"offset": "-1"})
    assert log.text == "".join(f"{number:08d}" for number in range(len(log.text) // 8)), "nothing is missing or doubled"
    events = event_ids(http)
    assert events == [one.answer for one in load.done["events"][: len(events)]]
    kept = {"streams": len(log.text) // 8, "events": len(events)}
    assert all(number < len(load.done[name]) for name, number in kept.items()), "some were lost, as the test wants"
    return kept


def check_streams(http: httpx.Client, done: list[Acknowledged], kept: int) -> None:
    """The case that skipped once: a reader at an old offset, after three new appends."""
    agreed = done[kept - 1].answer
    for number in range(3):
        assert http.post("/v1/stream/log", content=f"new----{number}", headers=TEXT).status_code == 204
    new = "new----0new----1new----2"
    assert read_stream(http, agreed) == (new, 0)
    for one in (done[kept], done[kept + 1], done[-1]):
        gone = http.get("/v1/stream/log", params={"offset": one.answer})
        assert (gone.status_code, gone.headers["Stream-Next-Offset"]) == (410, agreed), one
        assert read_stream(http, one.answer) == (new, 1)
    assert read_stream(http, done[0].answer)[0].endswith(f"{kept - 1:08d}{new}")


def check_events(http: httpx.Client, done: list[Acknowledged], kept: int) -> None:
    event = {"id": "new", "partitions": ["p"], "event": {"type": "t", "payload": "new"}}
    [result] = http.post("/v1/events", json={"events": [event]}).json()["results"]
    assert result["committed_id"] > done[-1].answer
    for one in (done[kept], done[-1]):
        reset = read_events(http, one.answer)
        assert (reset.status_code, reset.json()["details"]["agreed_committed_id"]) == (410, done[kept - 1].answer)
    [new] = read_events(http, done[kept - 1].answer).json()["events"]
    assert new["committed_id"] == result["committed_id"]


def check_deltas(http: httpx.Client, load: Load, lost: int) -> None:
    """Every row of before is there once; a cursor of the lost time is told."""
    pull = {"clientId": "new", "since": "0", "limit": "10000"}
    rows = [one["rowId"] for one in http.get(f"/v1/sync/{GATEWAY}/pull", params=pull).json()["deltas"]]
    assert len(rows) < len(load.done["deltas"])
    assert sorted(rows) == sorted(f"r{number}" for number in range(len(rows)))
    answer = http.get(f"/v1/sync/{GATEWAY}/pull", params={"clientId": "reader", "since": str(lost), "limit": "10"})
    assert (answer.status_code, answer.json()["code"]) == (410, "CURSOR_EXPIRED")


def check_ledger(http: httpx.Client, load: Load) -> None:
    """A client that was ahead is told where the chain stands, and goes on from there in a higher term."""
    done = load.done["ledger"]
    state = http.get(f"{load.ledger.place}/clients/till/state").json()
    last = int(state["lastCommittedSequence"])
    assert last < len(done)
    body = {"clientId": "till", "sequence": str(len(done) + 1), "operations": [{"deleteEntity": {"key": "k0"}}]}
    gap = http.post(f"{load.ledger.place}/writes", json=body).json()["error"]
    assert (gap["code"], gap["lastCommittedSequence"]) == ("WRITE_ERROR_CODE_SEQUENCE_GAP", str(last))
    load.ledger.write(http, last)
