"""`pg_basebackup` of a primary that servers write to, started as a database of its own after both were killed."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from tests.backup.load import GATEWAY, Load
from tests.backup.test_backup_under_load import check_deltas, check_events, check_ledger, check_replays, check_streams
from tests.cli.command import Semel
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer


def test_a_base_backup_in_a_new_epoch_has_every_write_of_before_and_no_old_position_skips(tmp_path: Path) -> None:
    semel = Semel("http://127.0.0.1:1")
    copy = Cluster()
    try:
        with Cluster() as primary, RunningServer(tmp_path / "a", env={"SEMEL_STORE": primary.url}) as server:
            load = Load(server.url)
            with load.running():
                load.wait(40)
                began = time.monotonic()
                copy.base_backup_of(primary)
                load.wait(20)
            with httpx.Client(base_url=server.url, timeout=30) as http:
                pull = {"clientId": "reader", "since": "0", "limit": "100000"}
                lost_cursor = int(http.get(f"/v1/sync/{GATEWAY}/pull", params=pull).json()["serverHlc"])
            server.kill()
        copy.start()
        raised = semel("epoch", "raise", "--store", copy.url, "--yes")
        assert raised.code == 0, raised.err
        checked = semel("check", "--store", copy.url)
        assert checked.code == 0, checked.out
        with (
            RunningServer(tmp_path / "b", env={"SEMEL_STORE": copy.url}) as server,
            httpx.Client(base_url=server.url, timeout=30) as http,
        ):
            kept = check_replays(http, load, began)
            check_streams(http, load.done["streams"], kept["streams"])
            check_events(http, load.done["events"], kept["events"])
            check_deltas(http, load, lost_cursor)
            check_ledger(http, load)
    finally:
        copy.remove()
