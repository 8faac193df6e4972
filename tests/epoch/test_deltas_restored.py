"""Deltas after a restore: a cursor of the lost future is refused over HTTP and WebSocket; the ledger's term rises."""

from __future__ import annotations

import asyncio
from pathlib import Path

from semel.client.errors import CursorExpiredError
from tests.cli.command import Semel
from tests.client.replica_kinds import open_replica
from tests.deltas.binary.caller import joined, pull_frame
from tests.epoch.conftest import Restored
from tests.epoch.restored import GATEWAY, LATE_GATEWAY, Premises, rows_of

NEW = [("r4", "new"), ("r5", "new"), ("r6", "new")]
DRIFT_MS = 5_000


def first_number(epoch: int) -> int:
    """The number with which a gateway goes on."""
    return (epoch + DRIFT_MS + 1) << 16


def lost_cursors(restored: Restored) -> list[int]:
    """Numbers that the lost future gave out, and the borders of what it can have given out."""
    held = restored.held
    return [*held.lost_cursors, held.lost_push, held.kept_cursor + 1, first_number(restored.epoch) - 1]


def test_c_epoch_a_lost_cursor_is_refused_over_http(restored: Restored) -> None:
    for since in lost_cursors(restored):
        answer = restored.writer.pull(since)
        assert (answer.status_code, answer.json()["code"]) == (410, "CURSOR_EXPIRED"), since
        assert "take the checkpoint, or pull from 0" in answer.json()["error"]


def test_c_epoch_a_lost_cursor_is_refused_over_websocket(restored: Restored) -> None:
    for since in lost_cursors(restored):
        with joined(restored.writer.port, GATEWAY, "reader") as socket:
            socket.send(pull_frame("reader", since))
            code, reason = socket.ending()
            assert (code, reason.partition(":")[0]) == (1008, "CURSOR_EXPIRED"), since


def test_c_epoch_a_cursor_of_a_gateway_made_in_the_lost_future_is_refused(restored: Restored) -> None:
    writer, held = restored.writer, restored.held
    answer = writer.pull(held.late_cursor, gateway=LATE_GATEWAY)
    assert (answer.status_code, answer.json()["code"]) == (410, "CURSOR_EXPIRED")
    assert rows_of(writer.pull(0, gateway=LATE_GATEWAY)) == [("r7", "new")]
    answer = writer.pull(held.late_cursor, gateway="never-made-again")
    assert (answer.status_code, answer.json()["code"]) == (410, "CURSOR_EXPIRED")
    assert writer.pull(0, gateway="never-made-again").status_code == 200


def test_c_epoch_cursors_of_the_agreed_history_read_on_and_nothing_new_is_skipped(restored: Restored) -> None:
    writer, held = restored.writer, restored.held
    page = writer.pull(held.kept_cursor)
    assert rows_of(page) == NEW
    assert (page.json()["epoch"], int(page.json()["serverHlc"]) > first_number(restored.epoch)) == (
        restored.epoch,
        True,
    )
    assert rows_of(writer.pull(first_number(restored.epoch), "another")) == NEW
    everything = [("r1", "kept"), *NEW]
    assert rows_of(writer.pull(0, "reader")) == everything
    seen, since = [], 0
    while (page := writer.pull(since, "small", limit=1)).json()["deltas"]:
        seen += rows_of(page)
        since = int(page.json()["serverHlc"])
    assert seen == everything
    assert since > first_number(restored.epoch)


def test_c_epoch_a_client_that_pushes_before_it_pulls_is_told_everything_new(restored: Restored) -> None:
    # Published clients take the answer of a push for their cursor: this one forgets by it that it was in the lost time.
    writer = restored.writer
    pushed = writer.push("r8", "late", client="plain")
    assert pushed > first_number(restored.epoch)
    assert set(NEW) <= set(rows_of(writer.pull(pushed, "plain")))


def test_c_epoch_commands_pass_the_refusal_on(restored: Restored) -> None:
    semel = Semel(restored.writer.url)
    run = semel.here("deltas", "pull", GATEWAY, "--since", str(restored.held.lost_cursors[0]))
    assert (run.code, run.raw) == (1, b"")
    assert "CURSOR_EXPIRED" in run.err or "take the checkpoint" in run.err


def test_c_epoch_the_term_of_the_ledger_is_that_of_no_other_history(restored: Restored) -> None:
    assert restored.held.term < restored.epoch <= restored.new_term


def test_c_epoch_our_own_client_is_told_and_starts_over(tmp_path: Path) -> None:
    premises, path = Premises("sqlite", tmp_path), tmp_path / "app.db"
    with premises.serving() as writer:
        writer.push("r1", "kept")
    premises.back_up()
    with premises.serving() as writer:
        writer.push("r2", "lost")
        assert asyncio.run(pulled_rows(path, writer.url)) == {"r1", "r2"}
    premises.restore()
    premises.raise_epoch()
    with premises.serving() as writer:
        writer.push("r3", "new")
        assert asyncio.run(pulled_rows(path, writer.url)) == {"r1", "r3"}


async def pulled_rows(path: Path, url: str) -> set[str]:
    """The rows of a replica after a pull; one that is told that its cursor is lost begins anew."""
    async with open_replica(path, gateway=GATEWAY, url=url, client_id="app", moved=True) as client:
        try:
            await client.pull()
        except CursorExpiredError:
            client.start_over()
            await client.pull()
        return {row for table in client.tables() for row in client.rows(table)}
