"""The small parts of the PostgreSQL store, each by its rules, and generations as several nodes turn them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from semel.store.open import open_store, shown
from semel.store.postgres.address import parse
from semel.store.postgres.locks import SLOTS, LockKind, Slot, slots_of, space
from semel.store.postgres.notify import MAX_PAYLOAD, CommitNotice, MissedCommits, decode, encode
from semel.store.postgres.pipeline import bytes_array, number_array
from semel.store.postgres.store import PgStore
from semel.store.protocol import Lock, StoreError
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.harness.together import eventually
from tests.store.conformance import (
    MIGRATIONS,
    TABLES,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    Clock,
    find,
    rotate,
    transaction,
    write,
)

# Addresses


def test_what_is_ours_is_taken_out_of_the_url() -> None:
    address = parse(
        "postgresql://me:p%40ss@one:5433,two/db?schema=s1&lanes=7&readers=2&patience_ms=900&sslmode=require"
    )
    assert (address.schema, address.lanes, address.readers, address.patience_ms) == ("s1", 7, 2, 900)
    given = conninfo_to_dict(address.conninfo)
    assert (given["user"], given["password"], given["host"], given["sslmode"]) == ("me", "p@ss", "one,two", "require")
    assert given["application_name"] == "semel"
    assert "lanes" not in given


def test_what_is_given_wins_over_our_defaults() -> None:
    given = conninfo_to_dict(parse("postgresql://h/db?connect_timeout=11&application_name=mine").conninfo)
    assert (given["connect_timeout"], given["application_name"]) == ("11", "mine")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@h/db?lanes=0",
        "postgresql://user:secret@h/db?lanes=many",
        "postgresql://user:secret@h/db?lanes=-1",
        "postgresql://user:secret@h/db?readers=65",
        "postgresql://user:secret@h/db?patience_ms=1",
        "postgresql://user:secret@h/db?schema=Upper",
        "postgresql://user:secret@h/db?schema=a%22b",
        "postgresql://user:secret@h/db?schema=" + "x" * 49,
        "postgresql://user:secret@h/db?no_such_parameter=1",
        "postgresql://user:secret@[::1/db",
        "postgresql://user:sec%ret@h/db",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError) as refused:
        parse(url)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://me:secret@one:1,two:2/db?password=secret", "postgresql://one:1,two:2/db"),
        ("postgresql://me:se@cret@h/db", "postgresql://h/db"),
        ("postgresql:///db?user=me&password=secret", "postgresql:///db"),
        ("postgresql://me:se/cret@h/db", "postgresql://h/db"),
        ("nonsense://me:secret@h/db", "nonsense://h/db"),
        ("nonsense:me:secret@h", "nonsense:..."),
        ("sqlite:folder", "sqlite:folder"),
        ("memory:", "memory:"),
    ],
)
def test_what_is_shown_of_a_url_holds_no_secret(url: str, seen: str) -> None:
    assert shown(url) == seen


# Encoding

NUMBERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20)
TEXTS = st.lists(st.none() | st.binary(max_size=30), max_size=20)


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared_cluster().url, autocommit=True) as made:
        yield made


@given(numbers=NUMBERS, texts=TEXTS)
def test_the_server_reads_arrays_as_they_were_meant(
    connection: psycopg.Connection, numbers: list[int | None], texts: list[bytes | None]
) -> None:
    asked = b"SELECT $1::int8[], $2::bytea[]"
    formats = [psycopg.pq.Format.BINARY] * 2
    result = connection.pgconn.exec_params(asked, [number_array(numbers), bytes_array(texts)], [1016, 1001], formats, 1)
    transformer = psycopg.adapt.Transformer(connection)
    transformer.set_pgresult(result)
    assert transformer.load_row(0, tuple) == (numbers, texts)


# Locks


def test_names_become_slots_in_order_and_the_stronger_lock_counts() -> None:
    names = [b"stream:%d" % number for number in range(5_000)]
    slots = slots_of([*(Lock(name, shared=True) for name in names), Lock(names[7])])
    assert [slot.number for slot in slots] == sorted({slot.number for slot in slots})
    assert len(slots) <= SLOTS
    assert [slot for slot in slots if not slot.shared] == slots_of([Lock(names[7])])
    assert slots_of([]) == []


def test_each_schema_and_each_kind_has_a_space_of_its_own() -> None:
    spaces = {space(schema, kind) for schema in ("one", "two") for kind in LockKind}
    assert len(spaces) == 2 * len(LockKind)
    assert all(-(2**31) <= one < 2**31 for one in spaces)
    assert Slot(LockKind.NAME, 1) == Slot(LockKind.NAME, 1, shared=False)


# Hints


@given(
    marks=st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**62), min_size=1, max_size=8),
    topics=st.lists(st.binary(max_size=40), max_size=30),
)
def test_a_hint_arrives_as_it_was_sent(marks: dict[int, int], topics: list[bytes]) -> None:
    hint = CommitNotice(marks, [topic for topic in topics if topic])
    assert len(encode(hint)) <= MAX_PAYLOAD
    assert decode(encode(hint)) == hint


def test_a_hint_that_would_be_too_long_is_for_everybody() -> None:
    long = CommitNotice({1: 2}, [b"%032d" % number for number in range(1_000)])
    assert decode(encode(long)) == CommitNotice({1: 2}, None)


@pytest.mark.parametrize("payload", ["", "nonsense", "1.2", "x.y;", ";", "1.2;!!", "1;AA=="])
def test_what_others_say_on_the_channel_is_no_hint(payload: str) -> None:
    assert decode(payload) is None


def test_a_commit_that_nobody_spoke_of_is_missed_at_the_second_look() -> None:
    missed = MissedCommits()
    missed.start({1: 5})
    assert not missed.look({1: 6, 2: 1})
    assert missed.look({1: 6, 2: 1})
    assert not missed.look({1: 6, 2: 1})


def test_a_hint_in_time_leaves_nothing_missed() -> None:
    missed = MissedCommits()
    missed.start({})
    for number in range(1, 10):
        assert not missed.look({1: number})
        missed.hear({1: number})
    missed.hear({1: 3})
    assert not missed.look({1: 9})
    assert not missed.look({1: 9})


def test_marks_that_are_gone_are_forgotten() -> None:
    missed = MissedCommits()
    missed.start({1: 5})
    assert not missed.look({})
    assert not missed.look({1: 1})
    assert missed.look({1: 1})


# Generations, between nodes


@pytest.fixture
def nodes() -> Iterator[tuple[PgStore, PgStore]]:
    url = fresh_url(lanes="2")
    opened = [open_store(url, TABLES, MIGRATIONS, Clock()) for _ in range(2)]
    one, other = opened
    assert isinstance(one, PgStore)
    assert isinstance(other, PgStore)
    yield one, other
    one.close()
    other.close()


def rows_in(store: PgStore, number: int) -> int:
    count: int = shared_cluster().execute(f"SELECT count(*) FROM {store.address.schema}.ticket_{number}")[0][0]
    return count


def test_a_node_that_has_not_heard_of_a_turn_writes_into_the_younger_generation(
    nodes: tuple[PgStore, PgStore],
) -> None:
    one, other = nodes
    write(other, [(TICKET, TICKET_ROW)])
    rotate(one)
    write(other, [(TICKET, TICKET_ROW._replace(serial=8))])
    assert (rows_in(one, 0), rows_in(one, 1)) == (1, 1)
    rotate(one)
    assert find(other, TICKET, TICKET_KEY) is None
    assert find(other, TICKET, (b"scope", 8)) == TICKET_ROW._replace(serial=8)
    write(other, updates=[(TICKET, TICKET_ROW._replace(serial=8, used_at=9))])
    rotate(one)
    assert find(other, TICKET, (b"scope", 8)) == TICKET_ROW._replace(serial=8, used_at=9)


def test_a_turn_waits_for_those_who_write_into_the_generation_that_it_closes(
    nodes: tuple[PgStore, PgStore],
) -> None:
    one, other = nodes
    with transaction(one) as tx:
        assert tx.now_ms
        held = shared_cluster().execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted "
            f"AND classid = ({space(one.address.schema, LockKind.GENERATION)}::int8 & 4294967295)::oid"
        )
        assert held == [(1,)]
    rotate(other)


def test_a_retired_generation_is_emptied_once_nobody_looks_at_it(nodes: tuple[PgStore, PgStore]) -> None:
    one, other = nodes
    write(one, [(TICKET, TICKET_ROW)])
    rotate(one)
    with other.read() as snapshot:
        assert snapshot.get(TICKET, TICKET_KEY) == TICKET_ROW
        rotate(one)
        time.sleep(1.1)
        one.tidy()
        assert rows_in(one, 0) == 1
        assert snapshot.get(TICKET, TICKET_KEY) == TICKET_ROW

    def is_emptied() -> bool:
        one.tidy()
        return rows_in(one, 0) == 0

    eventually(is_emptied, "the generation is empty")
    rotate(other)
    write(one, [(TICKET, TICKET_ROW)])
    assert find(other, TICKET, TICKET_KEY) == TICKET_ROW
