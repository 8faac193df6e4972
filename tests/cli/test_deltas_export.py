"""`semel deltas export` beside a running server: what is in the files, that it is one instant, and every refusal."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow.parquet
import pytest

from semel.cli.store_options import StoreOptions
from semel.server import offline_store
from semel.store.migrations import Migration
from semel.store.open import open_store
from semel.store.protocol import Changes, Range
from semel.surfaces.deltas.export_rows import log_of, rows_of
from semel.surfaces.deltas.tables import DELTA_LOG
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import SECONDS, Finished, Semel
from tests.deltas.vectors import HLC, Message, columns, delta
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

GATEWAY = "gw 1/ä"
START = int(HLC)


class Place(NamedTuple):
    """A running server, where its data is, and a command without a server's URL."""

    server: RunningServer
    store: str
    semel: Semel

    def export(self, *args: str, gateway: str = GATEWAY) -> Finished:
        return self.semel.here("deltas", "export", gateway, "--store", self.store, *args)

    def push(self, deltas: list[Message], gateway: str = GATEWAY) -> Message:
        body = {"clientId": "a", "deltas": deltas}
        path = httpx.URL(self.server.url).copy_with(raw_path=b"/v1/sync/" + quoted(gateway) + b"/push")
        answer = httpx.post(path, content=json.dumps(body), timeout=SECONDS)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert isinstance(told, dict)
        return told


def quoted(gateway: str) -> bytes:
    return "".join(f"%{byte:02X}" for byte in gateway.encode()).encode()


def change(number: int, op: str, table: str, row: str, client: str = "a", **values: Any) -> Message:
    return delta(op, columns(**values), table=table, row=row, client=client, hlc=START + number)


HISTORY = [
    change(1, "INSERT", "todos", "r1", title="Buy milk", done=False, count=1, share=1, tags=["a"]),
    change(2, "INSERT", "todos", 'r,"2"\n', title="", done=True, count=2, share=0.5, tags=None),
    change(5, "UPDATE", "todos", "r1", "b", title="naïve 🎉"),
    change(4, "UPDATE", "todos", "r1", title="lost", count=-7),
    change(6, "INSERT", "todos", "gone", title="x"),
    change(7, "DELETE", "todos", "gone"),
    change(8, "INSERT", "_row", "r\ud800", _row_id=1, text="a\ud800b"),
    change(9, "INSERT", "empty", "r1", a=1),
    change(10, "DELETE", "empty", "r1"),
]
ROWS = [
    {"table": "_row", "rowId": "r\ud800", "hlc": str(START + 8), "clientId": "a"}
    | {"columns": {"_row_id": 1, "text": "a\ud800b"}},
    {"table": "todos", "rowId": 'r,"2"\n', "hlc": str(START + 2), "clientId": "a"}
    | {"columns": {"count": 2, "done": True, "share": 0.5, "tags": None, "title": ""}},
    {"table": "todos", "rowId": "r1", "hlc": str(START + 5), "clientId": "b"}
    | {"columns": {"count": -7, "done": False, "share": 1, "tags": ["a"], "title": "naïve 🎉"}},
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data = tmp_path_factory.mktemp("export") / "data"
    store = f"sqlite:{data}" if request.param == "sqlite" else fresh_url()
    with RunningServer(data, env={"SEMEL_STORE": store}) as server:
        made = Place(server, store, Semel("http://127.0.0.1:1"))
        made.push(HISTORY)
        yield made


def refused(run: Finished, sentence: str, code: int = 1) -> None:
    assert (run.code, run.raw) == (code, b"")
    assert sentence in run.err


def lines(run: Finished) -> list[dict[str, Any]]:
    assert run.code == 0, run.err
    return [json.loads(line) for line in run.out.splitlines()]


def by_row(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: (one["table"], one["rowId"]))


def test_rows_as_lines(place: Place) -> None:
    run = place.semel("deltas", "export", GATEWAY, "--format", "jsonl", "--store", place.store)
    assert by_row(lines(run)) == ROWS
    assert run.err.splitlines()[0] == "Exporting: 5 rows"
    assert run.err.splitlines()[1].startswith(f"Exported 3 rows from {GATEWAY} as of ")
    of_one = place.export("--format", "jsonl", "--table", "todos")
    assert by_row(lines(of_one)) == ROWS[1:]
    assert lines(place.export("--format", "jsonl", "--table", "empty")) == []


def test_the_log_as_lines_that_can_be_pushed_again(place: Place) -> None:
    found = lines(place.export("--format", "jsonl", "--what", "log", "--verify"))
    positions = [int(one.pop("position")) for one in found]
    assert positions == sorted(set(positions))
    assert found == HISTORY
    assert place.push(found, "another")["duplicates"] == 0
    assert by_row(lines(place.export("--format", "jsonl", gateway="another"))) == ROWS
    only = place.export("--format", "jsonl", "--what", "log", "--table", "empty")
    assert [one["hlc"] for one in lines(only)] == [str(START + 9), str(START + 10)]


def test_flat_files_of_all_tables(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run = place.export("--format", "csv", "--output", str(folder), "--json")
    facts = run.facts
    assert (facts["rows"], facts["verified"], facts["dry_run"]) == (3, False, False)
    assert facts["files"] == [
        {"file": str(folder / "_row.csv"), "table": "_row", "rows": 1},
        {"file": str(folder / "empty.csv"), "table": "empty", "rows": 0},
        {"file": str(folder / "todos.csv"), "table": "todos", "rows": 2},
    ]
    assert {path.name for path in folder.iterdir()} == {"_row.csv", "empty.csv", "todos.csv"}
    assert (folder / "empty.csv").read_bytes() == b"_row_id,_hlc,_client_id\r\n"
    assert (folder / "_row.csv").read_text().splitlines() == [
        "__row_id,_hlc,_client_id,_row_id,text",
        f"r\\ud800,{START + 8},a,1,a\\ud800b",
    ]
    rows = list(csv.DictReader(io.StringIO((folder / "todos.csv").read_text(), newline="")))
    assert [row["title"] for row in rows if row["_row_id"] == "r1"] == ["naïve 🎉"]
    assert [row["_row_id"] for row in rows if row["title"] == ""] == ['r,"2"\n']


def test_parquet(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "todos.parquet"
    run = place.export("--format", "parquet", "--table", "todos", "-o", str(file))
    assert run.out.endswith(f" to {file}\n")
    table = pyarrow.parquet.read_table(file)
    assert {field.name: str(field.type) for field in table.schema} == {
        "_row_id": "string",
        "_hlc": "uint64",
        "_client_id": "string",
        "count": "int64",
        "done": "bool",
        "share": "double",
        "tags": "string",
        "title": "string",
    }
    found = {row["_row_id"]: row for row in table.to_pylist()}
    assert found["r1"] == {
        "_row_id": "r1",
        "_hlc": START + 5,
        "_client_id": "b",
        "count": -7,
        "done": False,
        "share": 1.0,
        "tags": '["a"]',
        "title": "naïve 🎉",
    }
    assert found['r,"2"\n']["tags"] is None
    about = table.schema.metadata
    assert (about[b"semel.gateway"].decode(), about[b"semel.table"]) == (GATEWAY, b"todos")
    assert place.export("--format", "parquet", "--what", "log", "-o", str(tmp_path / "log.parquet")).code == 0
    log = pyarrow.parquet.read_table(tmp_path / "log.parquet").to_pylist()
    assert [row["delta_id"] for row in log] == [one["deltaId"] for one in HISTORY]
    assert [row["op"] for row in log] == [one["op"] for one in HISTORY]
    assert json.loads(log[0]["columns"]) == HISTORY[0]["columns"]
    assert place.export("--format", "parquet", "-o", str(tmp_path / "all")).code == 0
    assert len(list((tmp_path / "all").iterdir())) == 3


def test_numbers_keep_their_values(place: Place, tmp_path: Path) -> None:
    """Every number of a delta is a double: beyond 2**53 its digits are the shortest that name it, not its own."""
    large = [1, -(2**53), 2**53 + 2, 2**62]
    place.push([change(number, "INSERT", "t", f"r{number}", n=n) for number, n in enumerate(large)], "large")
    place.push([change(10 + number, "INSERT", "u", f"r{number}", n=n) for number, n in enumerate(large[:2])], "large")
    out = str(tmp_path / "out")
    assert place.export("--format", "parquet", "-o", out, gateway="large").code == 0
    found = {table: pyarrow.parquet.read_table(tmp_path / "out" / f"{table}.parquet") for table in "tu"}
    assert {table: str(one.schema.field("n").type) for table, one in found.items()} == {"t": "double", "u": "int64"}
    assert {row["_row_id"]: row["n"] for row in found["t"].to_pylist()} == {
        f"r{number}": float(n) for number, n in enumerate(large)
    }
    assert sorted(found["u"].column("n").to_pylist()) == [-(2**53), 1]


def test_one_instant_whatever_is_pushed_meanwhile(place: Place) -> None:
    many = [change(number, "INSERT", "t", f"r{number}", n=number) for number in range(600)]
    place.push(many, "moving")
    with StoreOptions(store=place.store).reading() as reading:
        rows = rows_of(reading, "moving", None)
        found = [next(rows)]
        place.push([change(1_000 + number, "DELETE", "t", f"r{number}") for number in range(600)], "moving")
        found += rows
        assert sum(row.is_live for row in found) == 600
        assert [delta.hlc for delta in log_of(reading, "moving")] == [START + number for number in range(600)]
    assert lines(place.export("--format", "jsonl", gateway="moving")) == []


def test_what_follows_is_what_came_later(place: Place) -> None:
    place.push([change(1, "INSERT", "t", "r1", n=1)], "followed")
    as_of = place.export("--format", "csv", "--table", "t", "--dry-run", "--json", gateway="followed").facts["as_of"]
    place.push([change(2, "INSERT", "t", "r2", n=2)], "followed")
    pulled = Semel(place.server.url).here("deltas", "pull", "followed", "--since", as_of)
    assert [one["rowId"] for one in lines(pulled)] == ["r2"]


# What does not depend on the store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data = tmp_path_factory.mktemp("refusals") / "data"
    with RunningServer(data) as server:
        made = Place(server, f"sqlite:{data}", Semel("http://127.0.0.1:1"))
        made.push(HISTORY)
        yield made


def test_a_file_that_is_there_is_not_replaced(folder: Place, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("mine")
    args = ("--format", "jsonl", "--output", str(file))
    refused(folder.export(*args), "already exists: give another name, or --force")
    assert file.read_text() == "mine"
    assert folder.export(*args, "--force").code == 0
    assert len(file.read_text().splitlines()) == 3
    refused(folder.export("--format", "csv", "-o", str(tmp_path)), "already exists")
    refused(folder.export("--format", "csv", "-o", str(file), "--force"), "is a file")
    refused(folder.export(*args[:3], str(tmp_path / "no" / "where")), "There is no folder")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_dry_run_reads_everything_and_writes_nothing(folder: Place, tmp_path: Path) -> None:
    for args in (("csv",), ("parquet", "--table", "todos"), ("jsonl", "--what", "log", "--verify")):
        run = folder.export("--format", *args, "-o", str(tmp_path / "out"), "--dry-run")
        assert run.out.startswith("Would export "), run.err
        assert run.code == 0
    assert list(tmp_path.iterdir()) == []


def test_mistakes_in_the_command_line(folder: Place) -> None:
    for args, sentence in (
        (("--format", "parquet", "--table", "t"), "Parquet cannot be written to standard output"),
        (("--format", "csv"), "A folder cannot be written to standard output"),
        (("--format", "jsonl", "--verify"), "--verify needs --what log"),
        (("--format", "jsonl", "--table", "no-table"), "a table's name must have 1 to 64 letters"),
        (("--format", "xml"), "'xml' is not one of"),
        ((), "Missing option '--format'"),
    ):
        refused(folder.export(*args), sentence, 2)
    refused(folder.export("--format", "jsonl", gateway="x" * 257), "1 to 256 characters", 2)


def test_what_is_not_there(folder: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(folder.export("--format", "jsonl", gateway="gw2"), "There is no gateway gw2 in this store.")
    for form in ("jsonl", "csv"):
        refused(folder.export("--format", form, "--table", "todo"), "There is no table todo")
    empty = Place(folder.server, f"sqlite:{tmp_path}/none", folder.semel)
    refused(empty.export("--format", "jsonl"), "There is no data in sqlite:")
    refused(Place(folder.server, "memory:", folder.semel).export("--format", "jsonl"), "There is no data in memory:")
    open_store(f"sqlite:{tmp_path}/old", (), MIGRATIONS, lambda: 0).close()
    monkeypatch.setattr(offline_store, "MIGRATIONS", (*MIGRATIONS, Migration(2, "later", ())))
    old = Place(folder.server, f"sqlite:{tmp_path}/old", folder.semel)
    refused(old.export("--format", "jsonl"), "is of the older schema version 1: run `semel migrate`")


def test_a_bar_at_a_terminal(folder: Place, tmp_path: Path) -> None:
    args = ("--store", folder.store, "--format", "csv", "-o", str(tmp_path / "out"))
    run = folder.semel.on_terminal("deltas", "export", GATEWAY, *args)
    assert run.code == 0
    assert "Looking for columns" in run.out
    assert "5/5" in run.out
    assert "3/3" in run.out


CUT_SHORT = {
    "rows": ("--format", "jsonl"),
    "log": ("--format", "jsonl", "--what", "log"),
    "flat": ("--format", "csv", "--table", "t"),
}


@pytest.fixture(scope="module")
def long(folder: Place) -> Place:
    """Has a gateway with more than a pipe holds."""
    folder.push([change(number, "INSERT", "t", f"r{number}", n="x" * 200) for number in range(2_000)], "long")
    return folder


def read_one_byte(place: Place, *args: str) -> tuple[int, str]:
    """The exit code and standard error of a command whose reader stops after a byte."""
    with place.semel.start(*args) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.read(1)
        run.stdout.close()
        told = run.stderr.read().decode()
        return run.wait(SECONDS), told


@pytest.mark.parametrize("args", CUT_SHORT.values(), ids=CUT_SHORT)
def test_a_reader_that_has_seen_enough(args: tuple[str, ...], long: Place) -> None:
    code, told = read_one_byte(long, "deltas", "export", "long", "--store", long.store, *args)
    assert code == 0
    assert told.splitlines()[-1] == "Not all of long was exported: standard output was closed before its end."
    assert "Traceback" not in told
    assert "Exported" not in told


def test_a_reader_that_has_seen_enough_is_told_to_programs(long: Place) -> None:
    code, told = read_one_byte(long, "deltas", "export", "long", "--store", long.store, *CUT_SHORT["rows"], "--json")
    facts = json.loads(told.splitlines()[-1])
    assert (code, facts["whole"], facts["rows"], facts["files"]) == (0, False, None, [])
    whole = long.semel("deltas", "export", "long", "--store", long.store, *CUT_SHORT["rows"], "--json")
    facts = json.loads(whole.err.splitlines()[-1])
    assert (whole.code, facts["whole"], facts["rows"]) == (0, True, 2_000)


def test_a_reader_that_has_gone_before_the_last_buffer(folder: Place) -> None:
    """So little that nothing of it leaves before the end."""
    args = ("deltas", "export", GATEWAY, "--store", folder.store, "--format", "jsonl")
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "semel", *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=folder.semel.env, stdout=theirs, stderr=pipe) as run:
        os.close(theirs)
        told = run.communicate(timeout=SECONDS)[1].decode()
        assert (run.returncode, "Exported" in told, "Traceback" in told) == (0, False, False)
        assert "Not all of gw 1/ä was exported" in told


def test_a_pull_whose_reader_has_seen_enough_names_no_cursor(long: Place) -> None:
    semel = Semel(long.server.url)
    code, told = read_one_byte(Place(long.server, long.store, semel), "deltas", "pull", "long")
    assert (code, told) == (0, "The output is incomplete: standard output was closed early.\n")


def test_a_delta_that_was_tampered_with_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningServer(data) as server:
        made = Place(server, f"sqlite:{data}", Semel("http://127.0.0.1:1"))
        made.push(HISTORY)
    tamper(made.store, HISTORY[3]["deltaId"])
    out = tmp_path / "log.jsonl"
    args = ("--format", "jsonl", "--what", "log", "-o", str(out))
    refused(made.export(*args, "--verify"), f"The delta {HISTORY[3]['deltaId']} at position ")
    assert not out.exists()
    assert made.export(*args).code == 0
    assert len(out.read_text().splitlines()) == len(HISTORY)


def tamper(url: str, name: str) -> None:
    """Change what a stored delta says, behind the server's back."""
    store = open_store(url, TABLES, MIGRATIONS, lambda: 0)
    tx = store.begin(())
    [rows] = tx.load({}, [Range(DELTA_LOG, "", (), 100)]).ranges
    [found] = [row for row in rows if row.id.hex() == name and row.pushed]
    tx.flush(Changes({}, {DELTA_LOG: [found._replace(body=found.body.replace(b"lost", b"won!"))]}, {}))
    tx.commit()
    store.close()
