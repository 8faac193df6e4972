"""Results and fingerprints: every type comes back, and orjson changes no fingerprint."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections import namedtuple
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, ip_address, ip_interface, ip_network
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
import sqlalchemy
from hypothesis import example, given
from hypothesis import strategies as st

from semel.once import codec
from semel.once.codec import JSON, MAX_DEPTH, canonical
from semel.once.errors import ResultError
from semel.once.identity import fingerprint
from tests.harness.postgres.shared import shared_cluster

ATOMS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
TYPED = st.one_of(ATOMS, st.decimals(allow_nan=False), st.uuids(), st.datetimes(), st.dates(), st.times(), st.binary())
NAMES = st.one_of(st.text(), st.sampled_from(["$semel:decimal", "$semel:object", "$semel:"]))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values with lists, tuples and objects in one another."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(NAMES, inner, max_size=4)
        ),
        max_leaves=12,
    )


@given(nested(TYPED))
def test_a_result_comes_back_with_its_types(value: Any) -> None:
    found = JSON.loads(JSON.dumps(value))
    assert (found, shape(found)) == (value, shape(value))


def shape(value: Any) -> Any:
    """The types of a value: 1, 1.0 and True are equal, and not the same."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [shape(one) for one in value]
    return type(value)


@given(nested(TYPED))
@example([1e16, 1e-7, 5e-324, -0.0])
@example({"a": 2**64, "b": "\x7f\x1f\ud800"})
def test_fingerprints_and_results_are_the_same_with_orjson_and_without(value: Any) -> None:
    fast = canonical(value), JSON.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_accelerated", lambda option: codec._unaccelerated)
        assert (canonical(value), JSON.dumps(value)) == fast
    assert orjson.OPT_SORT_KEYS == codec._IN_ORDER


@given(nested(ATOMS))
def test_equal_arguments_have_equal_fingerprints_in_any_order(value: Any) -> None:
    assert fingerprint(turned(value)) == fingerprint(value)


def turned(value: Any) -> Any:
    """The same with the members of objects in the opposite order."""
    if isinstance(value, dict):
        return {name: turned(one) for name, one in reversed(value.items())}
    if isinstance(value, list | tuple):
        return type(value)(turned(one) for one in value)
    return value


def test_a_fingerprint_is_sha256_of_canonical_json() -> None:
    text = json.dumps({"a": [1, 2.5, None], "b": "ü"}, separators=(",", ":"), ensure_ascii=False)
    assert fingerprint({"b": "ü", "a": [1, 2.5, None]}) == hashlib.sha256(text.encode()).digest()


def test_values_that_look_alike_have_different_fingerprints() -> None:
    values: list[Any] = [1, "1", True, "true", None, "", [], {}, (), [1], (1,), 1.5, "1.5", Decimal("1.5")]
    values += [{"$semel:decimal": "1.5"}, {"$semel:object": {"$semel:decimal": "1.5"}}, b"1", date(2026, 1, 1)]
    values += ["2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), time(1), timedelta(1), UUID(int=1), str(UUID(int=1))]
    assert len({fingerprint(one) for one in values}) == len(values)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1: 2}, {"a": {None: 1}}, object(), [{"a": object()}]])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ResultError):
        JSON.dumps(value)
    with pytest.raises(ResultError):
        fingerprint(value)


def test_a_value_that_is_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert JSON.loads(JSON.dumps(value)) == value
    with pytest.raises(ResultError, match="levels"):
        JSON.dumps([value])
    with pytest.raises(ResultError, match="levels"):
        fingerprint({"a": value})


class Moment(datetime):
    """A time as a library has its own."""


class Size(Decimal):
    """A number as a library has its own."""


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (asyncpg.pgproto.pgproto.UUID(str(UUID(int=7))), UUID(int=7)),
        (Moment(2026, 1, 2, 3, tzinfo=UTC), datetime(2026, 1, 2, 3, tzinfo=UTC)),
        (Size("9.90"), Decimal("9.90")),
        (bytearray(b"ab"), b"ab"),
        (Point(1, Size("2")), {"x": 1, "y": Decimal("2")}),
        (Path("/a/b"), Path("/a/b")),
        (PurePosixPath("a"), PurePath("a")),
        (ip_address("10.0.0.1"), ip_address("10.0.0.1")),
        (ip_interface("10.0.0.1/8"), ip_interface("10.0.0.1/8")),
        (ip_network("fe80::/10"), ip_network("fe80::/10")),
    ],
    ids=repr,
)
def test_a_type_of_a_library_comes_back_as_that_of_the_standard_library(value: Any, found: Any) -> None:
    again = JSON.loads(JSON.dumps([value]))[0]
    assert (again, shape(again)) == (found, shape(found))
    assert fingerprint(value) == fingerprint(found)


def rows() -> list[Any]:
    """One row of each driver that has its own kind of row."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        found: list[Any] = [connection.execute("SELECT 7 AS number, 'ada' AS name").fetchone()]
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as opened:
        found.append(opened.execute(sqlalchemy.text("SELECT 7 AS number, 'ada' AS name")).one())
        found.append(opened.execute(sqlalchemy.text("SELECT 7 AS number, 'ada' AS name")).mappings().one())
    engine.dispose()
    return found


def test_a_row_comes_back_as_its_columns() -> None:
    for row in rows():
        assert JSON.loads(JSON.dumps({"row": row})) == {"row": {"number": 7, "name": "ada"}}, type(row)


def test_a_row_of_asyncpg_comes_back_as_its_columns() -> None:
    async def fetched(sql: str) -> Any:
        connection = await asyncpg.connect(shared_cluster().url)
        try:
            return await connection.fetchrow(sql)
        finally:
            await connection.close()

    row = asyncio.run(fetched("SELECT 7 AS number, '10.0.0.1'::inet AS host, gen_random_uuid() AS id"))
    again = JSON.loads(JSON.dumps(row))
    assert again == dict(row)
    assert [type(one) for one in again.values()] == [int, IPv4Address, UUID]
    with pytest.raises(ResultError, match="two columns of one name"):
        JSON.dumps(asyncio.run(fetched("SELECT 1 AS id, 2 AS id")))


def test_a_row_with_two_columns_of_one_name_is_refused() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with closing(sqlite3.connect(":memory:")) as connection, engine.connect() as opened:
        connection.row_factory = sqlite3.Row
        for row in (
            connection.execute("SELECT 1 AS id, 2 AS id").fetchone(),
            opened.execute(sqlalchemy.text("SELECT 1 AS id, 2 AS id")).one(),
        ):
            with pytest.raises(ResultError, match="two columns of one name"):
                JSON.dumps(row)
    engine.dispose()


class Money(Decimal):
    """A number that is printed for people."""

    def __str__(self) -> str:
        return f"${Decimal.__str__(self)}"


@dataclass
class Spread:
    """What can be spread into arguments, as `f(**spread)`."""

    a: int

    def keys(self) -> list[str]:
        return ["a"]

    def __getitem__(self, name: str) -> int:
        return self.a


def test_a_class_that_is_printed_for_people_is_stored_for_programs() -> None:
    assert JSON.loads(JSON.dumps([Money("5.00"), Spread(7)])) == [Decimal("5.00"), {"a": 7}]
