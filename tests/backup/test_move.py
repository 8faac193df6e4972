"""A move of a store: every row and the epoch arrive, and at no instant can two stores run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.kernel.namespace import url_within
from semel.server.offline_store import opened, opened_persistent, snapshot_of
from semel.store.open import inspect_store
from semel.store.postgres import PgStore
from semel.store.protocol import Changes, Row, StoreChangedError, StoreError, StoreMovedError
from semel.store.table import parts_of
from semel.surfaces.epoch import epoch_of
from semel.surfaces.schema import TABLES
from semel.surfaces.streams.tables import CHUNK, ChunkRow
from tests.backup.kill_steps import NEVER, Killer, tried_steps
from tests.check.filled import ENV, fill
from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import READY_SECONDS, RunningServer

MOVED = "was moved with `semel backup --move`"
SECONDS = 60


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with rows of all surfaces, in a second epoch."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    with RunningServer(folder, env=ENV) as server:
        fill(server)
    assert Semel("").here("epoch", "raise", "--data", str(folder), "--yes").code == 0
    return folder


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> str:
    shutil.copytree(filled, tmp_path / "source")
    return f"sqlite:{tmp_path}/source"


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place where nothing is yet."""
    return f"sqlite:{tmp_path}/target" if request.param == "sqlite" else fresh_url()


def rows_of(url: str) -> dict[str, list[Row]]:
    """All rows; those of a log table are in an order of each store."""
    with snapshot_of(url) as snapshot:
        return {
            part.name: sorted(snapshot.page(part.table, part.age, None, 1_000_000, 2**40), key=repr)
            for part in parts_of(TABLES)
        }


def is_moved(url: str) -> bool:
    return inspect_store(url, ()).is_moved


def is_occupied(url: str) -> bool:
    return inspect_store(url, TABLES).occupied is not None


def can_run(url: str) -> bool:
    """Whether a server would start on it and find rows."""
    return is_occupied(url) and not is_moved(url)


def unmark(url: str) -> None:
    with closing(opened_persistent(url)) as store:
        store.mark_moved(False)


def small(url: str) -> None:
    """A store of a few rows, more than a page of some."""
    with closing(opened(url)) as store:
        tx = store.begin(())
        tx.flush(Changes({CHUNK: [ChunkRow(b"id", end, os.urandom(2_000), 1, 1) for end in range(3_000)]}, {}, {}))
        tx.commit()


# What arrives


def test_a_store_moves_to_postgresql_and_back_with_every_row(semel: Semel, source: str, tmp_path: Path) -> None:
    before, file = rows_of(source), tmp_path / "file"
    assert len([rows for rows in before.values() if rows]) > 40
    places = [source, fresh_url(), f"sqlite:{tmp_path}/back"]
    for here, there in pairwise(places):
        made = semel.here("backup", str(file), "--move", "--force", "--store", here, "--json").facts
        assert (made["moved"], made["rows"]) == (True, sum(map(len, before.values())))
        assert semel.here("backup", "verify", str(file), "--json").facts["moved"]
        assert semel.here("restore", str(file), "--store", there, "--dry-run", "--json").facts["epoch"] is None
        done = semel.here("restore", str(file), "--store", there)
        assert done.out.endswith("The epoch stays: the store was marked as moved, and no server starts on it.\n")
        assert rows_of(there) == rows_of(here) == before
        assert (can_run(here), can_run(there)) == (False, True)
    with RunningServer(tmp_path / "back") as server, httpx.Client(base_url=server.url) as http:
        assert http.get("/readyz").status_code == 200


def test_one_namespace_moves_into_another(semel: Semel, source: str, empty: str, tmp_path: Path) -> None:
    before, file = rows_of(source), str(tmp_path / "file")
    red, blue = url_within(empty, "red"), url_within(empty, "blue")
    assert semel.here("backup", file, "--store", source, "--move").code == 0
    assert semel.here("restore", file, "--store", empty, "--namespace", "red").code == 0
    small(empty)
    again = semel.here("backup", file, "--store", empty, "--namespace", "red", "--move", "--force")
    assert again.code == 0, again.err
    assert semel.here("restore", file, "--store", empty, "--namespace", "blue").code == 0
    assert rows_of(blue) == before
    assert [can_run(url) for url in (red, blue, empty)] == [False, True, True]


def test_retries_are_answered_as_before_through_a_pipe(semel: Semel, tmp_path: Path) -> None:
    def append(url: str, key: str) -> httpx.Response:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return httpx.post(f"{url}/v1/stream/orders", headers=headers, content=f'{{"key": "{key}"}}')

    with RunningServer(tmp_path / "data") as server:
        httpx.put(f"{server.url}/v1/stream/orders", headers={"Content-Type": "application/json"}).raise_for_status()
        first = append(server.url, "order-1")
    url, run = fresh_url(), f"{sys.executable} -m semel"
    line = f"{run} backup - --move --data {server.data} | {run} restore - --store '{url}'"
    subprocess.run(["bash", "-o", "pipefail", "-c", line], env=semel.env, timeout=SECONDS, check=True)
    with RunningServer(tmp_path / "unused", env={"SEMEL_STORE": url}) as other:
        again, new = append(other.url, "order-1"), append(other.url, "order-2")
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["stream-next-offset"] == first.headers["stream-next-offset"]
        assert "idempotency-replayed" not in new.headers
        tail = first.headers["stream-next-offset"]
        behind = httpx.get(f"{other.url}/v1/stream/orders", params={"offset": tail})
        assert (behind.status_code, behind.json()) == (200, [{"key": "order-2"}])


# What is refused


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_store_in_use_is_refused_and_goes_on(semel: Semel, tmp_path: Path, store: str) -> None:
    env = {} if store == "sqlite" else {"SEMEL_STORE": fresh_url()}
    with RunningServer(tmp_path / "data", env=env) as server:
        url = env.get("SEMEL_STORE", f"sqlite:{server.data}")
        put = {"Content-Type": "text/plain"}
        httpx.put(f"{server.url}/v1/stream/one", headers=put).raise_for_status()
        refused = semel("backup", str(tmp_path / "file"), "--store", url, "--move")
        assert (refused.code, refused.raw) == (1, b"")
        assert "is using" in refused.err
        assert not is_moved(url)
        httpx.put(f"{server.url}/v1/stream/two", headers=put).raise_for_status()
    assert not list(tmp_path.glob("*file*"))
    with RunningServer(tmp_path / "data", env=env) as server:
        assert httpx.get(f"{server.url}/v1/stream/two").status_code == 200


def test_nothing_starts_on_a_moved_store_until_its_epoch_is_raised(semel: Semel, source: str, tmp_path: Path) -> None:
    data = source.removeprefix("sqlite:")
    assert semel.here("backup", str(tmp_path / "file"), "--store", source, "--move").code == 0
    server = RunningServer(Path(data))
    server.launch({})
    assert server.wait_for_death(READY_SECONDS) not in (None, 0)
    assert (MOVED in server.output_tail(), "Traceback" in server.output_tail()) == (True, False)
    for command in (
        ("config", "check", "--data", data),
        ("doctor", "--store", source),
        ("token", "create", "one", "--role", "read", "--offline", "--data", data),
    ):
        run = semel.here(*command)
        assert (run.code, MOVED in run.out + run.err) == (1, True), command
    before = semel.here("epoch", "show", "--data", data, "--json").facts["epoch"]
    raised = semel.here("epoch", "raise", "--data", data, "--yes", "--json").facts
    assert raised["epoch"] > before > 0
    with RunningServer(Path(data)) as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_a_moved_store_is_moved_again_and_a_plain_backup_of_it_gets_a_new_epoch(
    semel: Semel, source: str, tmp_path: Path
) -> None:
    first, second, plain = (str(tmp_path / name) for name in ("first", "second", "plain"))
    assert semel.here("backup", first, "--store", source, "--move").code == 0
    assert semel.here("backup", second, "--store", source, "--move").code == 0
    assert semel.here("backup", plain, "--store", source).code == 0
    epochs = []
    for file in (first, second, plain):
        url = f"sqlite:{file}-restored"
        assert semel.here("restore", file, "--store", url).code == 0
        with snapshot_of(url) as snapshot:
            epochs.append(epoch_of(snapshot))
    with snapshot_of(source) as snapshot:
        assert epochs[0] == epochs[1] == epoch_of(snapshot) < epochs[2]


def test_a_file_that_cannot_be_written_is_told_before_the_mark_and_one_that_fails_after_it(
    semel: Semel, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_bytes(b"")
    for file in ("taken", "nowhere/file"):
        assert semel.here("backup", str(tmp_path / file), "--store", source, "--move").code == 1
        assert not is_moved(source)
    monkeypatch.setattr(os, "fsync", _full_disk)
    failed = semel.here("backup", str(tmp_path / "file"), "--store", source, "--move")
    assert failed.code == 1
    assert "The store is marked as moved, and no server starts on it: move it again, or run" in failed.err
    assert is_moved(source)
    assert not (tmp_path / "file").exists()


def _full_disk(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_memory_store_and_an_empty_place_cannot_be_moved(semel: Semel, tmp_path: Path) -> None:
    for url in ("memory:", f"sqlite:{tmp_path}/nothing"):
        assert semel.here("backup", str(tmp_path / "file"), "--store", url, "--move").code == 1


# What a kill leaves


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_move_that_is_killed_leaves_a_store_that_runs_or_a_mark(semel: Semel, tmp_path: Path, kind: str) -> None:
    url = f"sqlite:{tmp_path}/source" if kind == "sqlite" else fresh_url()
    file, command = tmp_path / "file", ("backup", str(tmp_path / "file"), "--store", url, "--move", "--force")
    small(url)
    before, seen = rows_of(url), set()
    with Killer(semel.env) as killer:
        whole = killer.run(NEVER, *command)
        assert (whole.code, whole.steps > 30) == (0, True)
        for step in tried_steps(whole.steps):
            file.unlink(missing_ok=True)
            unmark(url)
            assert killer.run(step, *command).code == -signal.SIGKILL
            assert rows_of(url) == before
            seen.add((is_moved(url), file.exists()))
            if file.exists():
                assert semel.here("backup", "verify", str(file), "--json").facts["moved"]
            assert killer.run(NEVER, *command).code == 0, "a move that was killed is made again"
            assert is_moved(url)
            for part in tmp_path.glob(".file.*.part"):
                part.unlink()
    assert seen == {(False, False), (True, False), (True, True)}


def test_a_restore_of_a_move_that_is_killed_leaves_all_or_nothing(semel: Semel, empty: str, tmp_path: Path) -> None:
    url, file = f"sqlite:{tmp_path}/source", str(tmp_path / "file")
    small(url)
    before, seen = rows_of(url), set()
    assert semel.here("backup", file, "--store", url, "--move").code == 0
    with Killer(semel.env) as killer:
        whole = killer.run(NEVER, "restore", file, "--store", empty)
        assert (whole.code, whole.steps > 30) == (0, True)
        for step in tried_steps(whole.steps):
            target = f"sqlite:{tmp_path}/{step}" if empty.startswith("sqlite") else fresh_url()
            assert killer.run(step, "restore", file, "--store", target).code == -signal.SIGKILL
            _wait_for_the_end(target)
            seen.add(is_occupied(target))
            assert not can_run(url)
            if not is_occupied(target):
                assert killer.run(NEVER, "restore", file, "--store", target).code == 0
            assert rows_of(target) == before
    assert seen == {False, True}


def _wait_for_the_end(target: str) -> None:
    """A database ends the transaction of a killed client when it finds out."""
    if target.startswith("sqlite"):
        return
    with closing(opened_persistent(target)) as store:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with suppress(StoreError):
                store.mark_moved(False)  # under the locks of the restore
                if store.leads():
                    return
            time.sleep(0.05)
    raise AssertionError("the killed restore holds its locks")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_the_first_half_of_a_pipe_that_is_killed_leaves_the_second_empty(
    semel: Semel, tmp_path: Path, share: float
) -> None:
    url, target = f"sqlite:{tmp_path}/source", f"sqlite:{tmp_path}/target"
    small(url)
    before = rows_of(url)
    size = len(semel("backup", "-", "--store", url).raw)
    mover = semel.start("backup", "-", "--store", url, "--move")
    assert mover.stdout is not None
    held = b""
    while len(held) <= int(size * share) - 70_000:
        held += mover.stdout.read(4_096)
    mover.kill()
    held += mover.stdout.read()
    mover.communicate(timeout=SECONDS)
    refused = semel("restore", "-", "--store", target, stdin=held)
    assert (refused.code, is_occupied(target)) == (1, False)
    whole = semel("backup", "-", "--store", url, "--move")
    assert semel("restore", "-", "--store", target, stdin=whole.raw).code == 0
    assert rows_of(target) == before
    assert not can_run(url)


# Nodes of a database


@pytest.fixture
def database() -> str:
    url = fresh_url()
    small(url)
    return url


def test_a_node_that_was_not_seen_writes_nothing_after_the_mark(database: str) -> None:
    with closing(opened(database)) as node, closing(opened_persistent(database)) as mover:
        assert isinstance(node, PgStore)
        tx = node.begin(())
        tx.flush(Changes({CHUNK: [ChunkRow(b"late", 1, b"x", 1, 1)]}, {}, {}))
        marking = threading.Timer(0.05, tx.commit)
        marking.start()
        mover.mark_moved(True)  # waits for the transaction that is open
        marking.join()
        with snapshot_of(database) as snapshot:
            assert snapshot.get(CHUNK, (b"late", 1)) is not None
        late = node.begin(())
        with pytest.raises(StoreChangedError, match="was moved"):
            late.flush(Changes({CHUNK: [ChunkRow(b"late", 2, b"x", 1, 1)]}, {}, {}))
        late.rollback()
        with pytest.raises(StoreMovedError):
            opened(database)
        mover.mark_moved(False)
        tx = node.begin(())
        tx.flush(Changes({CHUNK: [ChunkRow(b"late", 3, b"x", 1, 1)]}, {}, {}))
        tx.commit()


def test_a_clock_behind_the_move_restores_nothing(
    semel: Semel, source: str, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch that was raised before the move would be later than the time of the new store."""
    file, wall_ms = str(tmp_path / "file"), SystemWorld.wall_ms
    with monkeypatch.context() as ahead:
        ahead.setattr(SystemWorld, "wall_ms", lambda world: wall_ms(world) + 86_400_000)
        assert semel.here("backup", file, "--store", source, "--move").code == 0
    refused = semel.here("restore", file, "--store", empty)
    assert (refused.code, "The clock is behind the time of the backup" in refused.err) == (1, True)
    assert not is_occupied(empty)
