"""Litestream beside a server that is writing on all surfaces, both killed, and the copy put into use."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from tests.backup.load import GATEWAY, TEXT, Load
from tests.backup.replication import Litestream
from tests.backup.test_backup_under_load import check_deltas, check_events, check_ledger, check_replays, check_streams
from tests.cli.command import Semel
from tests.harness.server import RunningServer


def start_log_anew(url: str, data: Path) -> None:
    """Write until the server has copied the whole log into the file, and begun it again."""
    log = data / "semel.db-wal"

    def salts() -> bytes:
        with log.open("rb") as file:
            return file.read(24)[16:]

    before = salts()
    with httpx.Client(base_url=url, timeout=30) as http:
        assert http.put("/v1/stream/large", headers=TEXT).status_code == 201
        for _ in range(500):
            assert http.post("/v1/stream/large", content=bytes(200_000), headers=TEXT).status_code == 204
            if salts() != before:
                return
    raise AssertionError("no checkpoint has come to its end")


def test_every_write_up_to_the_last_copied_one_is_there_and_no_old_position_skips(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    semel = Semel("http://127.0.0.1:1")
    with RunningServer(data) as server, Litestream(data, tmp_path / "litestream") as litestream:
        load = Load(server.url)  # every answer that is not a success ends it
        with load.running():
            load.wait(20)
            litestream.kill()
            start_log_anew(server.url, data)
            litestream.start()  # what it has missed is no longer in the log
            load.wait(20)
            began = time.monotonic()
            litestream.sync()
            load.wait(1)
            litestream.kill()
            load.wait(20)
        with httpx.Client(base_url=server.url, timeout=30) as http:
            pull = {"clientId": "reader", "since": "0", "limit": "100000"}
            lost_cursor = int(http.get(f"/v1/sync/{GATEWAY}/pull", params=pull).json()["serverHlc"])
            assert http.get("/metrics").json()["semel_engine_store_failures_total"] == 0
        server.kill()
    litestream.restore(copy)
    raised = semel("epoch", "raise", "--data", str(copy), "--yes")
    assert raised.code == 0, raised.err
    checked = semel("check", "--data", str(copy))
    assert checked.code == 0, checked.out
    with RunningServer(copy) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        kept = check_replays(http, load, began)
        check_streams(http, load.done["streams"], kept["streams"])
        check_events(http, load.done["events"], kept["events"])
        check_deltas(http, load, lost_cursor)
        check_ledger(http, load)
