"""Kinds of damage, each planted in a copy of a filled store by SQL or in the bytes of its file.

A row of the table says what is done and which words `semel check` must say of it. Rows are found by their order, so
that the table knows no ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Database(Protocol):
    """The database of a store, opened without the store."""

    def run(self, sql: str, *values: Any) -> None:
        """Execute a statement; each `?` stands for a value."""

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""


class Damage(NamedTuple):
    """One kind of damage."""

    name: str
    tables: str
    """The tables that it changes, separated by spaces; the first is the one that the fault may name."""
    plant: Callable[[Database], None]
    words: str
    """A part of what must be said."""


def sql(*statements: str) -> Callable[[Database], None]:
    """Damage by statements."""

    def plant(database: Database) -> None:
        for one in statements:
            database.run(one)

    return plant


def edited(
    table: str, column: str, where: str, change: Callable[[bytes], bytes], at: int = 0
) -> Callable[[Database], None]:
    """Damage of the bytes in one column of one row: the row at this place of those that are found."""

    def plant(database: Database) -> None:
        found = database.ask(f'SELECT "{column}" FROM {table} WHERE {where}')
        before = bytes(found[at][0])
        after = change(before)
        assert after != before
        database.run(f'UPDATE {table} SET "{column}" = ? WHERE "{column}" = ?', after, before)

    return plant


def flipped(place: int) -> Callable[[bytes], bytes]:
    """Flip the lowest bit of one byte."""
    return lambda data: data[:place] + bytes((data[place] ^ 1,)) + data[place:][1:]


def swapped(table: str, column: str, where: str, first: int, second: int, key: str) -> Callable[[Database], None]:
    """Swap one column of two rows that are found by their order."""

    def plant(database: Database) -> None:
        found = database.ask(f'SELECT {key}, "{column}" FROM {table} WHERE {where} ORDER BY {key}')
        (one, a), (two, b) = found[first], found[second]
        assert a != b
        for row, value in ((one, -1 if isinstance(a, int) else b"swap"), (two, a), (one, b)):
            database.run(f'UPDATE {table} SET "{column}" = ? WHERE {where} AND {key} = ?', value, row)

    return plant


def stream(name: str) -> str:
    """The SQL of the id of a stream of the filled store."""
    digits = b"0/" + name.encode()
    return f"(SELECT id FROM stream WHERE path = {literal(digits)})"


def literal(value: bytes) -> str:
    """Bytes in SQL; rewritten for PostgreSQL."""
    return f"x'{value.hex()}'"


def path(name: str) -> str:
    """The condition of a stream."""
    return f"path = {literal(b'0/' + name.encode())}"


def chunks(name: str) -> str:
    """The condition of the chunks of a stream."""
    return f"id = {stream(name)}"


def nth(table: str, column: str, where: str, offset: int) -> str:
    """The value of a column in the row at a place of its order."""
    return f"(SELECT {column} FROM {table} WHERE {where} ORDER BY {column} LIMIT 1 OFFSET {offset})"


_THIRD = nth("chunk", "end_at", chunks("text"), 2)
_LAST = f"(SELECT max(end_at) FROM chunk WHERE {chunks('text')})"
_VAULT = "vault = (SELECT vault FROM ledger_place WHERE height > 60)"
_ALL = literal(b"all-0")

DAMAGES: tuple[Damage, ...] = (
    # -- streams
    Damage(
        "a chunk removed", "chunk", sql(f"DELETE FROM chunk WHERE {chunks('text')} AND end_at = {_THIRD}"), "begins at"
    ),
    Damage(
        "the last chunk removed",
        "chunk",
        sql(f"DELETE FROM chunk WHERE {chunks('text')} AND end_at = {_LAST}"),
        "content ends at",
    ),
    Damage("a tail lowered", "stream", sql(f"UPDATE stream SET tail = tail - 1 WHERE {path('text')}"), "the tail is"),
    Damage("a tail raised", "stream", sql(f"UPDATE stream SET tail = tail + 9 WHERE {path('json')}"), "the tail is"),
    Damage(
        "content shortened",
        "chunk",
        edited("chunk", "data", chunks("text") + " ORDER BY end_at", lambda data: data[:-2], 4),
        "begins at",
    ),
    Damage(
        "content of a keyed append edited",
        "chunk",
        edited("chunk", "data", chunks("text") + " ORDER BY end_at", flipped(2), 3),
        "not the one of this receipt",
    ),
    Damage(
        "content of an append without a key edited",
        "chunk",
        edited("chunk", "data", f"data = {literal(b'produced 1' + bytes([10]))}", flipped(2)),
        "does not have its checksum",
    ),
    Damage(
        "two appends swapped",
        "chunk",
        swapped("chunk", "data", chunks("text"), 1, 3, "end_at"),
        "not the one of this receipt",
    ),
    Damage(
        "a message uncounted",
        "chunk",
        sql(f"UPDATE chunk SET messages = 1 WHERE {chunks('json')}"),
        "messages and has 2",
    ),
    Damage(
        "JSON broken",
        "chunk",
        edited("chunk", "data", chunks("json") + " ORDER BY end_at", lambda data: b"[" + data[1:], 1),
        "not JSON",
    ),
    Damage(
        "a chunk of no stream",
        "chunk",
        sql(f"UPDATE chunk SET id = {literal(bytes(16))} WHERE {chunks('text')} AND end_at = {_LAST}"),
        "belong to no stream",
    ),
    Damage(
        "a receipt's position edited",
        "receipt_0",
        sql(f"UPDATE receipt_0 SET tail = tail - 1 WHERE id = {stream('text')}"),
        "No append of the stream ends",
    ),
    Damage(
        "a receipt above the tail",
        "receipt_0",
        sql(f"UPDATE receipt_0 SET tail = tail + 100000 WHERE id = {stream('json')}"),
        "above the tail",
    ),
    Damage(
        "a receipt's fingerprint edited",
        "receipt_0",
        edited("receipt_0", "fingerprint", f"id = {stream('text')}", flipped(9)),
        "not the one of this receipt",
    ),
    Damage(
        "a closed stream opened",
        "stream",
        sql(f"UPDATE stream SET closed = 0 WHERE {path('closed')}"),
        "the stream is open or longer",
    ),
    Damage(
        "a fork uncounted",
        "stream",
        sql(f"UPDATE stream SET forks = forks - 1 WHERE {path('text')}"),
        "forks and has 1",
    ),
    Damage(
        "the row of a fork removed",
        "fork",
        sql(f"DELETE FROM fork WHERE id = {stream('fork')}"),
        "the row that names its source is not there",
    ),
    Damage(
        "the chain of a fork cut",
        "fork",
        edited("fork", "chain", f"id = {stream('fork-of-fork')}", lambda data: data[:-24]),
        "does not end at the fork point",
    ),
    Damage(
        "the source of a fork removed",
        "stream",
        sql(f"DELETE FROM stream WHERE {path('kept')}"),
        "neither there nor kept",
    ),
    Damage(
        "a producer of another life",
        "producer",
        sql(f"UPDATE producer SET id = {literal(bytes(16))}"),
        "belongs to no stream",
    ),
    Damage(
        "more freed than dropped",
        "retention",
        sql("UPDATE retention SET freed = freed + 1000"),
        "Content was freed up to",
    ),
    Damage(
        "a stream under another name",
        "stream",
        sql(f"UPDATE stream SET path = {literal(b'0/other')} WHERE {path('closed')}"),
        "under another name",
    ),
    Damage(
        "a subscription uncounted",
        "subscription_fact",
        sql("UPDATE subscription_fact SET number = 0"),
        "subscriptions are counted of",
    ),
    Damage("a subscription removed", "subscription", sql("DELETE FROM subscription"), "belongs to no subscription"),
    # -- events
    Damage(
        "an event removed",
        "event",
        sql("DELETE FROM event WHERE committed_id = 7"),
        "The events from 7 up to it are not there",
    ),
    Damage(
        "the last event removed", "event", sql("DELETE FROM event WHERE committed_id = 20"), "up to the end of the log"
    ),
    Damage("an id removed", "event_id", sql("DELETE FROM event_id WHERE committed_id = 7"), "19 ids for 20 positions"),
    Damage(
        "an event edited",
        "event",
        edited("event", "event", "committed_id = 5", lambda data: data.replace(b"4", b"5")),
        "has other content",
    ),
    Damage(
        "the ids of two events swapped",
        "event",
        swapped("event", "id", "committed_id > 0", 3, 4, "committed_id"),
        "has another id",
    ),
    Damage(
        "the positions of two ids swapped",
        "event_id",
        swapped("event_id", "committed_id", "committed_at > 0", 1, 2, "digest"),
        "has another id",
    ),
    Damage(
        "the end of the log lowered",
        "event_head",
        sql("UPDATE event_head SET last_id = last_id - 1"),
        "above the end of the log",
    ),
    Damage(
        "a place removed",
        "event_place",
        sql(f"DELETE FROM event_place WHERE name = {_ALL} AND committed_id = 3"),
        "no place in this partition",
    ),
    Damage(
        "a partition's count lowered",
        "event_partition",
        sql(f"UPDATE event_partition SET kept = kept - 1 WHERE name = {_ALL}"),
        "It counts 19 events and has 20",
    ),
    # -- jobs
    Damage(
        "a counter of jobs lowered",
        "job_totals",
        sql("UPDATE job_totals SET waiting = waiting - 1"),
        "waiting jobs are counted of",
    ),
    Damage("the number of jobs lowered", "job_totals", sql("UPDATE job_totals SET seq = 1"), "The last number is 1"),
    Damage(
        "a counter of a queue lowered",
        "job_line",
        sql("UPDATE job_line SET waiting = waiting + 1"),
        "waiting jobs are counted of",
    ),
    Damage(
        "a job removed",
        "job",
        sql("DELETE FROM job WHERE id = (SELECT min(id) FROM job WHERE phase = 2)"),
        "is not there",
    ),
    Damage("a lease forgotten", "job", sql("UPDATE job SET phase = 0 WHERE phase = 1"), "without being leased"),
    Damage(
        "a key of a job removed",
        "job_record",
        sql("DELETE FROM job_record WHERE job = (SELECT min(id) FROM job WHERE phase = 0 AND key_until > 0)"),
        "key is not remembered",
    ),
    Damage(
        "a generated key of a job removed",
        "job_record",
        sql("DELETE FROM job_record WHERE job = (SELECT min(id) FROM job WHERE phase = 0 AND key_until < 0)"),
        "key is not remembered",
    ),
    Damage(
        "a generated key taken for a named one",
        "job_record",
        sql("UPDATE job_record SET alias = 0 WHERE alias < 0"),
        "has one of the other kind",
    ),
    Damage(
        "the number of generated keys lowered",
        "job_tenant",
        sql("UPDATE job_tenant SET generated = generated - 1 WHERE generated > 0"),
        "generated jobs are counted of",
    ),
    Damage(
        "the end of a generated key moved",
        "job_brief",
        sql("UPDATE job_brief SET expires_at = expires_at + 1"),
        "at another time",
    ),
    Damage(
        "the jobs of two keys swapped",
        "job_record",
        swapped("job_record", "job", "alias = 0", 0, 1, "key"),
        "has another key",
    ),
    Damage("large params removed", "job_part", sql("DELETE FROM job_part WHERE part = 0"), "are not there"),
    Damage(
        "a result edited",
        "job_part",
        edited("job_part", "data", "part = 1 ORDER BY id", lambda data: data.replace(b"xx", b"xy", 1)),
        "digest of its report",
    ),
    Damage("a dead letter removed", "job_dead", sql("DELETE FROM job_dead"), "dead letters are counted of"),
    Damage("a member's end uncounted", "job_group", sql("UPDATE job_group SET ended = 0"), "It counts"),
    Damage(
        "a member's outcome edited", "job_member", sql("UPDATE job_member SET outcome = 0"), "is not that of its job"
    ),
    # -- ledger
    Damage(
        "a chain cut",
        "ledger_block",
        sql(f"DELETE FROM ledger_block WHERE {_VAULT} AND height = 30"),
        "where block 30 must be",
    ),
    Damage(
        "the end of a chain cut",
        "ledger_block ledger_place",
        sql(
            f"DELETE FROM ledger_block WHERE {_VAULT} AND height = 71",
            "UPDATE ledger_place SET height = height - 1 WHERE height > 60",
        ),
        "not the hash of its last block",
    ),
    Damage(
        "a block edited",
        "ledger_block",
        sql(f"UPDATE ledger_block SET at_nanos = at_nanos + 1 WHERE {_VAULT} AND height = 9"),
        "hash of the block before",
    ),
    Damage(
        "a transaction edited",
        "ledger_block",
        edited("ledger_block", "operations", f"{_VAULT} AND height = 9", flipped(20)),
        "does not have the hash in its header",
    ),
    Damage(
        "two blocks swapped",
        "ledger_block",
        swapped("ledger_block", "previous_hash", _VAULT, 4, 5, "height"),
        "hash of the block before",
    ),
    Damage(
        "a tip edited",
        "ledger_place",
        edited("ledger_place", "tip_hash", "height > 60", flipped(3)),
        "not the hash of its last block",
    ),
    Damage(
        "large operations removed",
        "ledger_body",
        sql(f"DELETE FROM ledger_body WHERE {_VAULT} AND height = 4"),
        "operations of the block are not there",
    ),
    Damage(
        "an entity edited",
        "ledger_entity",
        edited("ledger_entity", "value", f"key = {literal(b'account-2')}", flipped(0)),
        "hash of its leaf",
    ),
    Damage(
        "an entity removed",
        "ledger_entity",
        sql(f"DELETE FROM ledger_entity WHERE key = {literal(b'account-2')}"),
        "A leaf of the tree has no entity",
    ),
    Damage(
        "a large value edited",
        "ledger_value",
        edited("ledger_value", "value", _VAULT + " ORDER BY version DESC", flipped(8)),
        "its leaf",
    ),
    Damage(
        "a page of the tree edited",
        "ledger_tree",
        edited("ledger_tree", "pages", _VAULT + " AND height = 70", flipped(9)),
        "does not have the hash",
    ),
    Damage(
        "a page of the tree removed",
        "ledger_tree",
        sql(f"DELETE FROM ledger_tree WHERE {_VAULT} AND height = 70"),
        "is not there",
    ),
    Damage("a root edited", "ledger_tops", edited("ledger_tops", "roots", _VAULT, flipped(0)), "roots of its buckets"),
    Damage(
        "a client's sequence lowered",
        "ledger_stream",
        edited("ledger_stream", "last", f"client = {literal(b'till-1')}", lambda data: (5).to_bytes(8, "big")),
        "Its last commit, 5, is not in block",
    ),
    Damage(
        "a client forgotten",
        "ledger_stream",
        sql(f"DELETE FROM ledger_stream WHERE client = {literal(b'till-1')}"),
        "is not remembered",
    ),
    Damage(
        "a key of the ledger removed",
        "ledger_key",
        sql(f"DELETE FROM ledger_key WHERE client = {literal(b'keys')}"),
        "is not remembered",
    ),
    Damage(
        "a log's count lowered", "ledger_org", sql("UPDATE ledger_org SET entries = entries - 1"), "entries and counts"
    ),
    # -- deltas
    Damage(
        "a delta removed",
        "delta_log",
        sql("DELETE FROM delta_log WHERE position = (SELECT min(position) FROM delta_log)"),
        "There is no delta at its position",
    ),
    Damage(
        "a delta edited",
        "delta_log",
        edited("delta_log", "body", "pushed = 1 ORDER BY position", lambda data: data.replace(b"t0", b"t9")),
        "the hash that is its id",
    ),
    Damage(
        "an id of a delta removed",
        "delta_id",
        sql("DELETE FROM delta_id WHERE position = (SELECT min(position) FROM delta_log)"),
        "deltas and has 26 ids",
    ),
    Damage(
        "an older value wins",
        "delta_row",
        edited("delta_row", "state", "number = 5", lambda data: data.replace(b"u5", b"t5")),
        "not those that the deltas",
    ),
    Damage(
        "a merged row removed", "delta_row", sql("DELETE FROM delta_row WHERE number = 3"), "is not there, or another"
    ),
    Damage(
        "the numbers of two rows swapped",
        "delta_row_number",
        swapped("delta_row_number", "number", "number >= 0", 2, 3, "row_key"),
        "is not there, or another",
    ),
    Damage(
        "a gateway's count lowered",
        "delta_gateway",
        sql(f"UPDATE delta_gateway SET entries = entries - 1 WHERE name = {literal(b'gw0')}"),
        "entries and has",
    ),
    Damage(
        "a client of a gateway removed",
        "delta_replica",
        sql("DELETE FROM delta_replica WHERE client = (SELECT min(client) FROM delta_replica)"),
        "The gateway counts",
    ),
    Damage(
        "an epoch of the future",
        "epoch",
        sql(f"INSERT INTO epoch VALUES ({literal(b'')}, 9000000000000000, {literal(b'')}, 0)"),
        "later than the time",
    ),
)
