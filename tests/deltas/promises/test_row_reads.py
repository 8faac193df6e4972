"""What administrators read of rows: tables, merged rows with who set each column, and the deltas of one row."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.deltas.wire import Deltas, columns, delta, hlcs

ROW = "row-<b>1</b>"


def read(deltas: Deltas, gateway: str, what: str, expect: int = 200, **query: Any) -> Any:
    return deltas.call("GET", f"/v1/admin/{what}/{gateway}?{urlencode(query)}", expect=expect)


def entries_of(deltas: Deltas, gateway: str, **query: Any) -> tuple[list[Any], int]:
    """All entries, and the number of pages."""
    found: list[Any] = []
    after = "0"
    for pages in range(1, 50):
        page = read(deltas, gateway, "entries", after=after, **query)
        found += page["entries"]
        if not page["hasMore"]:
            assert page["position"] <= page["end"]
            return found, pages
        assert int(page["position"]) > int(after)
        after = page["position"]
    raise AssertionError("the log does not end")


def test_a_row_tells_who_set_each_column_and_its_entries_which_write_lost(deltas: Deltas, gateway: str) -> None:
    clock = hlcs()
    first, early, second, third = (next(clock) for _ in range(4))
    made = delta("INSERT", columns(title="one", state="open"), row=ROW, client="phone", hlc=first)
    late = delta("UPDATE", columns(title="three"), row=ROW, client="tablet", hlc=third)
    lost = delta("UPDATE", columns(title="two", state="done"), row=ROW, client="phone", hlc=second)
    other = delta("INSERT", columns(title="other"), row="other", client="phone", hlc=early)
    for one in (made, other, late, lost):
        deltas.push(gateway, [one], client=one["clientId"])
    assert dict(read(deltas, gateway, "tables")) == {"tables": ["todos"], "hasMore": False}
    [row] = read(deltas, gateway, "rows", table="todos", row=ROW)["rows"]
    assert (row["isDeleted"], row["deltaId"]) == (False, late["deltaId"])
    assert {one["column"]: (one["value"], one["clientId"], one["deltaId"], one["hlc"]) for one in row["columns"]} == {
        "title": ("three", "tablet", late["deltaId"], str(third)),
        "state": ("done", "phone", lost["deltaId"], str(second)),
    }
    entries, _ = entries_of(deltas, gateway, table="todos", row=ROW, column="title")
    assert [one["deltaId"] for one in entries] == [made["deltaId"], late["deltaId"], lost["deltaId"]]
    assert [one["columns"][0]["value"] for one in entries] == ["one", "three", "two"]
    entries, _ = entries_of(deltas, gateway, table="todos", row=ROW, column="state")
    assert [one["deltaId"] for one in entries] == [made["deltaId"], lost["deltaId"]]
    gone = delta("DELETE", [], row=ROW, client="phone", hlc=next(clock))
    deltas.push(gateway, [gone], client="phone")
    [row] = read(deltas, gateway, "rows", table="todos", row=ROW)["rows"]
    assert (row["isDeleted"], row["columns"], row["deltaId"]) == (True, [], gone["deltaId"])
    entries, _ = entries_of(deltas, gateway, table="todos", row=ROW, column="state")
    assert [one["op"] for one in entries] == ["INSERT", "UPDATE", "DELETE"]


def test_rows_and_entries_of_a_long_log_are_complete_in_limited_pages(deltas: Deltas, gateway: str) -> None:
    clock = hlcs()
    mine = [delta("INSERT", columns(title="first"), row=ROW, hlc=next(clock))]
    others = [delta("INSERT", columns(n=number), row=f"r-{number:05}", hlc=next(clock)) for number in range(6_000)]
    mine.append(delta("UPDATE", columns(title="last"), row=ROW, hlc=next(clock)))
    for part in ([mine[0]], others[:3_000], others[3_000:], [mine[1]]):
        deltas.push(gateway, part)
    entries, pages = entries_of(deltas, gateway, table="todos", row=ROW)
    assert [one["deltaId"] for one in entries] == [one["deltaId"] for one in mine]
    assert pages == 2
    names: list[str] = []
    after: Any = None
    while True:
        page = read(deltas, gateway, "rows", table="todos", limit=1_000, **({} if after is None else {"after": after}))
        names += [one["rowId"] for one in page["rows"]]
        after = page["next"]
        if after is None:
            break
    assert names == [ROW, *(f"r-{number:05}" for number in range(6_000))]


@pytest.mark.parametrize(
    "query", ["", "table=", "table=todos", "table=todos&row=", "table=todos&row=r&after=x", "table=todos&row=r&limit=0"]
)
def test_a_query_that_is_not_understood_is_refused(anywhere: Deltas, gateway: str, query: str) -> None:
    answer = anywhere.call("GET", f"/v1/admin/entries/{gateway}?{query}", expect=400)
    assert answer.code == "VALIDATION_ERROR"


def test_a_gateway_without_rows_has_none(deltas: Deltas, gateway: str) -> None:
    assert dict(read(deltas, gateway, "tables")) == {"tables": [], "hasMore": False}
    assert dict(read(deltas, gateway, "rows", table="todos")) == {"rows": [], "next": None}
    empty = {"entries": [], "position": "0", "hasMore": False, "cut": "0", "end": "0"}
    assert dict(read(deltas, gateway, "entries", table="todos", row="r")) == empty


def test_a_page_of_entries_looks_at_a_limited_part_of_a_log_of_large_deltas(deltas: Deltas, gateway: str) -> None:
    clock, large = hlcs(), "x" * 900_000
    mine = [delta("INSERT", columns(title="first"), row=ROW, hlc=next(clock))]
    inner = {"column": "title", "value": large}
    others = [delta("UPDATE", columns(body=[inner]), row=ROW, hlc=next(clock)) for _ in range(12)]
    mine.append(delta("UPDATE", columns(title="last"), row=ROW, hlc=next(clock)))
    for one in (mine[0], *others, mine[1]):
        deltas.push(gateway, [one])
    for query in ({"row": ROW, "column": "title"}, {"row": ROW, "column": "none"}, {"row": "another"}):
        entries, pages = entries_of(deltas, gateway, table="todos", **query)
        wanted = mine if query.get("column") == "title" else []
        assert [one["deltaId"] for one in entries] == [one["deltaId"] for one in wanted]
        assert pages == 2


@pytest.mark.parametrize("after", [2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("what", ["rows", "entries"])
def test_behind_the_greatest_number_there_is_nothing(deltas: Deltas, gateway: str, what: str, after: int) -> None:
    deltas.push(gateway, [delta("INSERT", columns(title="one"), row=ROW, hlc=next(hlcs()))])
    query: dict[str, Any] = {"table": "todos", "after": str(after)} | ({"row": ROW} if what == "entries" else {})
    page = read(deltas, gateway, what, **query)
    assert page[what] == []
