"""Answers of the server as values, validated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.client.deltas.drafts import NAME
from semel.client.deltas.rows import OPS, ReplicaChange, ReplicaStamp
from semel.client.errors import BadAnswerError, RefusedError
from semel.client.json_answer import Facts, read
from semel.kernel.hlc import read_hlc


class ReplicaEntry(NamedTuple):
    """The server's state of a row, at a position in its log."""

    table: str
    row_id: str
    change: ReplicaChange
    at: int


class ReplicaReceipt(NamedTuple):
    """The answer to a push."""

    at: int
    """The position at which the deltas were decided."""
    settled: int
    """How many of them are decided, from the first one on."""
    duplicates: int
    entries: Sequence[ReplicaEntry]
    """Rows that differ from the deltas because other replicas won."""
    cursor: int
    """The cursor of the push, or a later one if no other client has written after it."""
    first: int
    """The position of the first new delta; 0 if none was new."""
    epoch: int


class ReplicaPage(NamedTuple):
    """The answer to a pull."""

    since: int
    entries: Sequence[ReplicaEntry]
    cursor: int
    has_more: bool
    epoch: int


class ReplicaFlaw(NamedTuple):
    """One delta that a refusal names."""

    at: int
    code: str
    message: str


def receipt(facts: Facts, sent: int) -> ReplicaReceipt:
    """Parse the answer to a push of this number of deltas. It must account for all of them."""
    return read(lambda: _receipt(facts, sent))


def page(facts: Facts, since: int) -> ReplicaPage:
    """Parse the answer to a pull from a cursor."""
    return read(lambda: _page(facts, since))


def piece(facts: Facts) -> ReplicaPage:
    """A line of a checkpoint."""
    return read(lambda: _page(facts, 0))


def flaws(error: RefusedError, ids: Sequence[str]) -> list[ReplicaFlaw]:
    """The deltas that a refusal names correctly."""
    details = error.facts.get("details")
    named = {}
    for one in details if isinstance(details, list) else []:
        index = one.get("index") if isinstance(one, dict) else None
        if type(index) is int and 0 <= index < len(ids) and one.get("deltaId") == ids[index]:
            named[index] = ReplicaFlaw(index, str(one.get("code", error.code)), str(one.get("message", "")))
    return sorted(named.values())


def server_hlc(error: RefusedError) -> int | None:
    """The server's clock in a refusal, or None."""
    try:
        return _hlc(error.facts.get("serverHlc"))
    except ValueError:
        return None


def _receipt(facts: Facts, sent: int) -> ReplicaReceipt:
    counts = accepted, duplicates, settled, epoch = [
        facts[name] for name in ("accepted", "duplicates", "settled", "epoch")
    ]
    if any(type(count) is not int for count in counts) or accepted != sent or not min(1, sent) <= settled <= sent:
        raise ValueError("counts")
    entries = [_entry(one) for one in facts["deltas"]]
    at, cursor, first = _hlc(facts["serverHlc"]), _hlc(facts["cursor"]), _hlc(facts.get("first", "0"))
    return ReplicaReceipt(at, settled, duplicates, entries, cursor, first, epoch)


def _page(facts: Facts, since: int) -> ReplicaPage:
    entries, cursor, has_more = [_entry(one) for one in facts["deltas"]], _hlc(facts["serverHlc"]), facts["hasMore"]
    epoch = facts["epoch"]
    if type(has_more) is not bool or type(epoch) is not int:
        raise ValueError("hasMore")
    if cursor < since or (has_more and cursor == since):
        raise BadAnswerError(
            f"The server answered with a place before the one that was asked for ({cursor} after {since}). Was it "
            "restored from a backup? start_over() reads everything again."
        )
    return ReplicaPage(since, entries, cursor, has_more, epoch)


def _entry(facts: Any) -> ReplicaEntry:
    op, table, row_id, client = facts["op"], facts["table"], facts["rowId"], facts["clientId"]
    if op not in OPS or not NAME.fullmatch(table) or not isinstance(row_id, str) or not isinstance(client, str):
        raise ValueError("an entry")
    columns = {} if op == "DELETE" else {one["column"]: one.get("value") for one in facts["columns"]}
    if not all(NAME.fullmatch(name) for name in columns):
        raise ValueError("a column")
    return ReplicaEntry(
        table, row_id, ReplicaChange(op, ReplicaStamp(_hlc(facts["hlc"]), client), columns), _hlc(facts["position"])
    )


def _hlc(text: Any) -> int:
    value = read_hlc(text) if isinstance(text, str) else None
    if value is None:
        raise ValueError("a time")
    return value
