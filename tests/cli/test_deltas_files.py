"""The files that exports make: what their columns hold, how a value is written, and when a file has its name."""

from __future__ import annotations

import builtins
import csv
import io
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from semel.surfaces.deltas import flat_files
from semel.surfaces.deltas.export_rows import MOST, MOST_COLUMNS, PAGE_BYTES, ExportPageSize, Survey
from semel.surfaces.deltas.export_target import new_file, new_folder, refuse_taken
from semel.surfaces.deltas.flat_files import (
    MISSING,
    CsvFile,
    ExportError,
    FlatColumn,
    FlatKind,
    ParquetFile,
    joined,
    kind_of,
    require_pyarrow,
    string_of,
)
from semel.surfaces.deltas.reading import MergedRow

KINDS = (
    ("null", FlatKind.NOTHING),
    ("true", FlatKind.BOOLEAN),
    ("false", FlatKind.BOOLEAN),
    ("0", FlatKind.INTEGER),
    ("-7", FlatKind.INTEGER),
    ("9007199254740992", FlatKind.INTEGER),
    ("-9007199254740992", FlatKind.INTEGER),
    ("9007199254740994", FlatKind.DOUBLE),
    ("-9007199254740994", FlatKind.DOUBLE),
    ("4611686018427388000", FlatKind.DOUBLE),
    ("100000000000000000000", FlatKind.DOUBLE),
    ("0.5", FlatKind.DOUBLE),
    ("1e+21", FlatKind.DOUBLE),
    ("-5e-324", FlatKind.DOUBLE),
    ('"x"', FlatKind.STRING),
    ('"12"', FlatKind.STRING),
    ("{}", FlatKind.JSON),
    ("[1]", FlatKind.JSON),
)


@pytest.mark.parametrize(("text", "kind"), KINDS, ids=[text for text, _ in KINDS])
def test_the_kind_of_a_value(text: str, kind: FlatKind) -> None:
    assert kind_of(text) is kind


@pytest.mark.parametrize("one", FlatKind, ids=lambda kind: kind.value)
def test_kinds_together(one: FlatKind) -> None:
    for other in FlatKind:
        both = joined(one, other)
        assert both is joined(other, one)
        if FlatKind.NOTHING in (one, other):
            assert both is (one if other is FlatKind.NOTHING else other)
        elif one is other:
            assert both is one
        elif {one, other} == {FlatKind.INTEGER, FlatKind.DOUBLE}:
            assert both is FlatKind.DOUBLE
        else:
            assert both is FlatKind.JSON


def test_strings() -> None:
    assert string_of('"naïve 🎉"') == "naïve 🎉"
    assert string_of(r'"a\"b\\c\n"') == 'a"b\\c\n'
    assert string_of(r'"a\ud800b"') == r"a\ud800b"
    string_of(r'"a\ud800b\udc00c"').encode()


FIELDS = [
    FlatColumn("id", FlatKind.STRING),
    FlatColumn("at", FlatKind.UNSIGNED),
    FlatColumn("flag", FlatKind.BOOLEAN),
    FlatColumn("count", FlatKind.INTEGER),
    FlatColumn("share", FlatKind.DOUBLE),
    FlatColumn("any", FlatKind.JSON),
    FlatColumn("none", FlatKind.NOTHING),
]
ROWS: list[list[str | None]] = [
    ['"r1"', "18446744073709551615", "true", "-9007199254740992", "0.1", '{"a":[1,"x"]}', None],
    ['""', "0", "false", "7", "1e+21", '"text"', "null"],
    [r'"a,\"b\"\r\nc"', "1", None, None, None, None, None],
    [r'" \ud800"', "2", "null", "null", "3", "5", None],
]


def csv_bytes(fields: list[FlatColumn], rows: list[list[str | None]]) -> bytes:
    out = io.BytesIO()
    made = CsvFile(out, fields)
    for row in rows:
        made.add(row)
    made.finish()
    return out.getvalue()


def test_csv_byte_for_byte() -> None:
    assert csv_bytes(FIELDS, ROWS).split(b"\r\n") == [
        b"id,at,flag,count,share,any,none",
        b'r1,18446744073709551615,true,-9007199254740992,0.1,"{""a"":[1,""x""]}",',
        b'"",0,false,7,1e+21,"""text""",',
        b'"a,""b""',
        b'c",1,,,,,',
        b'" \\ud800",2,,,3,5,',
        b"",
    ]


@pytest.mark.parametrize(
    "text", ["plain", "", " ", "a ", "\ta", 'q"q', "a,b", "a\nb", "a\rb", "é 🎉", "=1+1", "\u2028"]
)
def test_csv_is_what_others_read(text: str) -> None:
    made = csv_bytes(
        [FlatColumn("x", FlatKind.STRING), FlatColumn("y", FlatKind.STRING)],
        [[f'"{json_inside(text)}"', '"end"']],
    )
    rows = list(csv.reader(io.StringIO(made.decode(), newline=""), strict=True))
    assert rows == [["x", "y"], [text, "end"]]


def json_inside(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def parquet_table(rows: list[list[str | None]]) -> Any:
    out = io.BytesIO()
    made = ParquetFile(out, FIELDS, {"gateway": "gw1"})
    for row in rows:
        made.add(row)
    made.finish()
    return pyarrow.parquet.ParquetFile(io.BytesIO(out.getvalue()))


def test_parquet_has_types_and_values() -> None:
    table = parquet_table(ROWS).read()
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        "id": "string",
        "at": "uint64",
        "flag": "bool",
        "count": "int64",
        "share": "double",
        "any": "string",
        "none": "string",
    }
    assert table.schema.field("any").metadata[b"semel.kind"] == b"json"
    assert table.schema.metadata[b"semel.gateway"] == b"gw1"
    assert table.to_pylist() == [
        {"id": "r1", "at": 2**64 - 1, "flag": True, "count": -(2**53), "share": 0.1, "any": '{"a":[1,"x"]}'}
        | {"none": None},
        {"id": "", "at": 0, "flag": False, "count": 7, "share": 1e21, "any": '"text"', "none": None},
        {"id": 'a,"b"\r\nc', "at": 1, "flag": None, "count": None, "share": None, "any": None, "none": None},
        {"id": r" \ud800", "at": 2, "flag": None, "count": None, "share": 3.0, "any": "5", "none": None},
    ]


def test_parquet_keeps_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_files, "GROUP_ROWS", 3)
    by_rows = parquet_table(ROWS * 2)
    assert [by_rows.metadata.row_group(place).num_rows for place in range(by_rows.num_row_groups)] == [3, 3, 2]
    assert by_rows.read().num_rows == 8
    monkeypatch.setattr(flat_files, "GROUP_BYTES", 1)
    assert parquet_table(ROWS).num_row_groups == len(ROWS)


def test_an_empty_parquet_file_is_one() -> None:
    assert parquet_table([]).read().num_rows == 0


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExportError) as told:
        require_pyarrow()
    assert str(told.value) == MISSING


def row(table: str, columns: dict[str, str], *, is_live: bool = True) -> MergedRow:
    return MergedRow(table, '"r"', 7, '"c"', b"", tuple(columns.items()), is_live)


def test_columns_are_found_in_all_rows_of_their_table() -> None:
    survey = Survey()
    for one in (
        row("a", {"n": "1", "s": '"x"'}),
        row("a", {"n": "0.5", "_row_id": "null", "__row_id": "true"}),
        row("b", {"n": "1"}),
        row("b", {"n": '"1"'}),
        row("c", {}, is_live=False),
    ):
        survey.look_at(one)
    shapes = survey.shapes()
    assert list(shapes) == ["a", "b", "c"]
    assert [field.name for field in shapes["a"].fields] == [
        *("___row_id", "_hlc", "_client_id"),
        *("__row_id", "_row_id", "n", "s"),
    ]
    kinds = [(field.name, field.kind) for field in shapes["a"].fields[3:]]
    assert kinds == [
        ("__row_id", FlatKind.BOOLEAN),
        ("_row_id", FlatKind.NOTHING),
        ("n", FlatKind.DOUBLE),
        ("s", FlatKind.STRING),
    ]
    assert shapes["b"].fields[3:] == [FlatColumn("n", FlatKind.JSON)]
    assert [shape.rows for shape in shapes.values()] == [2, 2, 0]
    assert shapes["a"].cells(row("a", {"s": '"x"', "n": "1"})) == ['"r"', "7", '"c"', None, None, "1", '"x"']


def test_more_columns_than_a_flat_file_can_have() -> None:
    survey = Survey()
    for start in range(0, MOST_COLUMNS, 1_000):
        survey.look_at(row("a", {f"c{number}": "1" for number in range(start, start + 1_000)}))
    with pytest.raises(ExportError, match="too many for flat files"):
        survey.look_at(row("b", {"one_more": "1"}))


def test_pages_are_as_large_as_their_rows_allow() -> None:
    pace = ExportPageSize()
    for _ in range(10):
        pace.note(pace.limit, pace.limit * 100)
    assert pace.limit == MOST
    pace.note(MOST, MOST * PAGE_BYTES)
    assert pace.limit == 1
    pace.note(1, 0)
    assert pace.limit == 2


# Names


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with new_file(path) as out:
        out.write(b"whole")
        assert [one.name for one in tmp_path.iterdir()] == [f".out.csv.{os.getpid()}.part"]
    assert [one.name for one in tmp_path.iterdir()] == ["out.csv"]
    assert path.read_bytes() == b"whole"


def broken_file(path: Path, end: BaseException) -> None:
    with new_file(path) as out:
        out.write(b"half")
        raise end


def broken_folder(path: Path, end: BaseException) -> None:
    with new_folder(path) as folder:
        (folder / "a.csv").write_bytes(b"half")
        raise end


@pytest.mark.parametrize(
    "end",
    [KeyboardInterrupt(), ExportError("no"), OSError(28, "No space left on device")],
    ids=["control-c", "refused", "full disk"],
)
def test_what_ends_early_leaves_what_was_there(tmp_path: Path, end: BaseException) -> None:
    (tmp_path / "out").write_bytes(b"before")
    with pytest.raises((KeyboardInterrupt, ExportError)):
        broken_file(tmp_path / "out", end)
    with pytest.raises((KeyboardInterrupt, ExportError)):
        broken_folder(tmp_path / "folder", end)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"out": b"before"}


def test_what_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    for name, made in (("file", new_file), ("folder", new_folder)):
        path = tmp_path / name
        with pytest.raises(ExportError, match="already exists"), made(path):
            path.mkdir()
    assert {one.name for one in tmp_path.iterdir()} == {"file", "folder"}


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot be written: No space left"), new_file(tmp_path / "out"):
        raise OSError(28, "No space left on device")


def test_a_folder_takes_the_place_of_files_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for content in (b"1", b"2"):
        with new_folder(path, force=True) as folder:
            (folder / "a.csv").write_bytes(content)
        (path / "other").write_bytes(b"stays")
    assert {one.name: one.read_bytes() for one in path.iterdir()} == {"a.csv": b"2", "other": b"stays"}
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_names_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name, is_folder, force, sentence in (
        ("file", False, False, "already exists"),
        ("folder", True, False, "already exists"),
        ("file", True, True, "is a file"),
        ("folder", False, True, "is a folder"),
        ("not/there", False, False, "There is no folder"),
    ):
        with pytest.raises(ExportError, match=sentence):
            refuse_taken(tmp_path / name, is_folder=is_folder, force=force)
    refuse_taken(tmp_path / "file", is_folder=False, force=True)
    refuse_taken(tmp_path / "folder", is_folder=True, force=True)
    refuse_taken(tmp_path / "new", is_folder=True, force=False)
