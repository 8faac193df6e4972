"""`semel copy` moves a data set, or says why not and leaves the target as it was."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from semel.store import copy
from semel.store.open import inspect_store, open_store
from semel.store.protocol import AnyTable, Changes, CommitUnknownError, Row, Store
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, RECEIPT, TOMBSTONE, ChunkRow, ReceiptRow, TombstoneRow
from tests.cli.command import Semel
from tests.cli.places import is_nothing_there
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

PARTS = [
    *("generation", "stream", "chunk", "producer", "receipt (older)", "receipt (younger)", "grave"),
    *("fork", "retention", "subscription", "subscription_link", "subscription_glob", "subscription_mark"),
    *("subscription_grave", "signing_key", "subscription_fact"),
    *("event", "event_id", "event_place", "event_partition", "event_head", "event_gap"),
    *("event_group", "event_lease", "event_parked", "event_snapshot", "event_snapshot_body", "event_tally"),
    *(
        "job",
        "job_name",
        "job_part",
        "job_record",
        "job_alias",
        "job_unique",
        "job_group",
        "job_member",
        "job_child",
        "job_expiry",
        "job_totals",
        "job_line",
        "job_kinds",
        "job_queue",
        "job_tenant",
        "job_share",
        "job_dead",
    ),
    *("job_step", "job_claim", "job_seal", "job_schedule"),
    *("ledger_term", "ledger_org", "ledger_entry", "ledger_place", "ledger_stream", "ledger_key"),
    *(
        "ledger_block",
        "ledger_body",
        "ledger_entity",
        "ledger_past",
        "ledger_value",
        "ledger_tops",
        "ledger_roots",
        "ledger_tree",
    ),
    "ledger_made",
    *("delta_gateway", "delta_id", "delta_legacy_id", "delta_log", "delta_row_number", "delta_row", "delta_replica"),
    *("delta_author", "delta_schema"),
    "epoch",
    *("auth_token", "auth_token_head"),
    *("console_session", "console_session_head"),
    "audit_head",
    *("storage_note", "quota_share", "quota_total"),
    *("retry", "retry_total"),
]


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, lambda: 0)


def receipt(number: int) -> ReceiptRow:
    return ReceiptRow(b"scope", b"%d" % number, b"id", b"\x00\xff", 9, 204, number, 0, None, None)


def write(store: Store, rows: dict[AnyTable, list[Row]], *, turn: bool = False) -> None:
    tx = store.begin(())
    tx.flush(Changes(rows, {}, {}))
    if turn:
        tx.rotate(RECEIPT)
    tx.commit()


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A folder with some rows, some of them in the older generation."""
    url = f"sqlite:{tmp_path}/source"
    store = opened(url)
    write(store, {RECEIPT: [receipt(number) for number in range(3)]}, turn=True)
    write(store, {RECEIPT: [receipt(number) for number in range(3, 5)]})
    write(
        store,
        {CHUNK: [ChunkRow(b"id", end, bytes(2_000), 1, 1) for end in range(2_500)], TOMBSTONE: [TombstoneRow(b"g", 1)]},
    )
    store.close()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place where nothing is yet."""
    return f"sqlite:{tmp_path}/target" if request.param == "sqlite" else fresh_url()


def test_copies_and_shows_both_sides(semel: Semel, source: str, target: str) -> None:
    run = semel("copy", "--from", source, "--to", target)
    assert run.code == 0, run.err
    head, *lines, last = run.out.splitlines()
    assert head.split()[:2] == ["table", "rows"]
    assert [line.rpartition("  same")[0].split("  ")[0] for line in lines] == PARTS
    cells = {line.split("  ")[0]: line.split()[-5:] for line in lines}
    for part, rows in (("chunk", "2,500"), ("receipt (older)", "3"), ("receipt (younger)", "2"), ("stream", "0")):
        here, there, digest, copied, verdict = cells[part]
        assert (here, there, verdict) == (rows, rows, "same")
        assert digest == copied
    assert last.startswith("Copied 2,506 rows from ")
    assert last.endswith("; both stores are equal.")
    assert run.err.splitlines() == ["Copying: 2,506 rows", "Checking both sides: 5,012 rows"]
    one, other = opened(source), opened(target)
    try:
        assert copy.compare(one, other, TABLES, lambda _: None).differing == []
    finally:
        one.close()
        other.close()


def test_a_bar_at_a_terminal(semel: Semel, source: str, tmp_path: Path) -> None:
    run = semel.on_terminal("copy", "--from", source, "--to", f"sqlite:{tmp_path}/target")
    assert run.code == 0
    assert "Copying" in run.out
    assert "2506/2506" in run.out
    assert "5012/5012" in run.out


def test_a_dry_run_counts_and_changes_nothing(semel: Semel, source: str, target: str) -> None:
    run = semel.here("copy", "--from", source, "--to", target, "--dry-run")
    assert run.code == 0
    _, *lines, last = run.out.splitlines()
    counts = {line.rpartition("  ")[0].strip(): line.split()[-1] for line in lines}
    assert list(counts) == PARTS
    assert counts["chunk"] == "2,500"
    assert counts["receipt (older)"] == "3"
    assert last.startswith("Would copy 2,506 rows from sqlite:")
    assert is_nothing_there(target)


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_a_target_with_rows_is_refused(semel: Semel, source: str, target: str, flags: list[str]) -> None:
    store = opened(target)
    write(store, {TOMBSTONE: [TombstoneRow(b"mine", 7)]})
    store.close()
    run = semel.here("copy", "--from", source, "--to", target, *flags)
    assert (run.code, run.raw) == (1, b"")
    assert run.err == (
        "Error: The target is not empty, there are rows in grave: use a new folder, schema or database.\n"
    )
    store = opened(target)
    try:
        assert sum(copy.count(store, TABLES).values()) == 1
    finally:
        store.close()


def test_a_dry_run_leaves_a_target_folder_as_it_was(semel: Semel, source: str, tmp_path: Path) -> None:
    folder = tmp_path / "target"
    opened(f"sqlite:{folder}").close()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert semel("copy", "--from", source, "--to", f"sqlite:{folder}", "--dry-run").code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_copy_that_was_made_is_not_made_again(semel: Semel, source: str, target: str) -> None:
    assert semel.here("copy", "--from", source, "--to", target).code == 0
    assert semel.here("copy", "--from", source, "--to", target).code == 1


def test_what_is_no_copy_is_a_mistake_in_the_command_line(semel: Semel, source: str, tmp_path: Path) -> None:
    postgres = fresh_url().replace("semel@", "semel:secret@")
    for args, sentence in (
        (["--from", source, "--to", source], "Both stores are the same"),
        (["--from", source, "--to", source.replace("/source", "/x/../source")], "Both stores are the same"),
        (["--from", postgres, "--to", postgres], "Both stores are the same"),
        (["--from", "memory:", "--to", source], "A memory store cannot be copied"),
        (["--from", source, "--to", "memory:"], "A memory store cannot be copied"),
        (["--from", source], "Missing option '--to'"),
    ):
        run = semel.here("copy", *args)
        assert (run.code, run.raw) == (2, b"")
        assert sentence in run.err
        assert "secret" not in run.err


def test_a_source_without_data_is_refused_and_not_made(semel: Semel, target: str, tmp_path: Path) -> None:
    for missing in (f"sqlite:{tmp_path}/typo", fresh_url()):
        run = semel.here("copy", "--from", missing, "--to", target)
        assert run.code == 1
        assert run.err.startswith("Error: There is no data in ")
        assert is_nothing_there(missing)
    assert is_nothing_there(target)


def test_an_older_source_is_refused_and_not_migrated(semel: Semel, target: str, tmp_path: Path) -> None:
    old = f"sqlite:{tmp_path}/old"
    open_store(old, (), (), lambda: 0).close()
    assert semel.here("copy", "--from", old, "--to", target).code == 1
    assert inspect_store(old, ()).version == 0
    assert is_nothing_there(target)


def test_a_source_in_use_is_told_as_it_is(semel: Semel, target: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        run = semel("copy", "--from", f"sqlite:{server.data}", "--to", target)
        assert run.code == 1
        assert run.err.startswith(f"Error: Another server (process {server.pid}) is using {server.data}: ")
    assert is_nothing_there(target)


def test_a_copy_that_differs_fails(semel: Semel, source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = copy.copy

    def copy_and_meddle(one: Store, other: Store, tables: tuple[AnyTable, ...], tell: copy.Tell) -> None:
        whole(one, other, tables, tell)
        write(other, {TOMBSTONE: [TombstoneRow(b"meddler", 1)]})

    monkeypatch.setattr(copy, "copy", copy_and_meddle)
    run = semel.here("copy", "--from", source, "--to", target)
    assert run.code == 1
    assert [line.split()[0] for line in run.out.splitlines() if line.endswith("DIFFERENT")] == ["grave"]
    assert "The copy differs in grave: do not use it." in run.err


def test_a_commit_in_doubt_is_told_as_doubt(
    semel: Semel, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CommitUnknownError("The connection was lost.")

    monkeypatch.setattr(copy, "copy", fail)
    run = semel.here("copy", "--from", source, "--to", target)
    assert run.code == 1
    assert run.err.splitlines()[-1] == (
        "Error: The connection was lost. It is unknown whether the copy was stored: "
        "run this again; it is refused if it was."
    )


def test_passwords_are_not_shown(semel: Semel, source: str) -> None:
    target = fresh_url().replace("semel@", "semel:secret@") + "&application_name=secret"
    for flags in (["--dry-run"], [], []):
        run = semel("copy", "--from", source, "--to", target, *flags)
        assert "secret" not in run.out + run.err


KEYS = [f"order-{number}" for number in range(5)]


def append(url: str, key: str, stream: str = "orders") -> httpx.Response:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    return httpx.post(f"{url}/v1/stream/{stream}", headers=headers, content=f'{{"key": "{key}"}}')


def test_a_server_on_the_copy_goes_on_where_the_first_one_stopped(semel: Semel, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        httpx.put(f"{server.url}/v1/stream/orders", headers={"Content-Type": "application/json"}).raise_for_status()
        first = {key: append(server.url, key) for key in KEYS}
        content = httpx.get(f"{server.url}/v1/stream/orders").json()
    assert {answer.status_code for answer in first.values()} == {204}
    url = fresh_url()
    run = semel("copy", "--from", f"sqlite:{server.data}", "--to", url)
    assert run.code == 0, run.err

    with RunningServer(tmp_path / "unused", env={"SEMEL_STORE": url}) as other:
        for key, answer in first.items():
            again = append(other.url, key)
            assert again.status_code == answer.status_code
            assert again.headers["stream-next-offset"] == answer.headers["stream-next-offset"]
            assert again.headers["idempotency-replayed"] == "true"
            assert "idempotency-replayed" not in answer.headers
        assert httpx.get(f"{other.url}/v1/stream/orders").json() == content
        tail = first[KEYS[-1]].headers["stream-next-offset"]
        new = append(other.url, "order-new")
        assert new.status_code == 204
        assert new.headers["stream-next-offset"] > tail
        assert "idempotency-replayed" not in new.headers
        behind = httpx.get(f"{other.url}/v1/stream/orders", params={"offset": tail})
        assert behind.json() == [{"key": "order-new"}]
        assert append(other.url, "order-new").headers["idempotency-replayed"] == "true"
    assert list((tmp_path / "unused").rglob("*.*")) == [tmp_path / "unused" / "logs" / "audit.node"]
