"""What a run is judged by, when everything has ended: every answer that anybody was given, against the log.

| must hold | |
|---|---|
| batches | an acknowledged one is there, each delta once; an abandoned one whole or not at all; a refused one never |
| answers | the first acknowledgement tells no duplicates or, after an unknown outcome, all or none; later ones all |
| positions | rise strictly in the order of the log, and none is below the time of its delta |
| numbers | that of a push is above every number of its gateway that anybody had been given before the push was sent |
| readers | have been told exactly what one who comes new is told, in the same order: nothing skipped, nothing twice |
| rows | the merged rows, the databases of clients and what a reader makes of the entries are the fold of the log |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from semel.surfaces.deltas.reading import DeltaGauges, MergedRow
from tests.deltas.crash.caller import Given
from tests.deltas.crash.parties import Batch
from tests.deltas.model.fold import Folded, fold
from tests.deltas.model.replicas import values_of
from tests.deltas.pushed_log import LoggedDelta
from tests.harness.crash.verdict import Verdict

REFUSALS = {409: "CLOCK_DRIFT", 422: "VALIDATION_ERROR"}


@dataclass(frozen=True)
class Gateway:
    """One gateway, as it is read at the end."""

    name: str
    log: Sequence[LoggedDelta]
    rows: Sequence[MergedRow]
    gauges: DeltaGauges
    fresh: Sequence[DeltaEntry]
    """As one who comes new is told it."""
    readers: Mapping[str, Sequence[DeltaEntry]]
    """As those who were always there were told it."""


def judge_batches(verdict: Verdict, log: Sequence[LoggedDelta], batches: Iterable[Batch]) -> None:
    """What was acknowledged is there, and nothing else but what may be."""
    there = Counter(one.id for one in log)
    verdict.require(all(count == 1 for count in there.values()), "a delta is in the log twice")
    expected: set[bytes] = set()
    for batch in batches:
        verdict.count("batches")
        verdict.count("unknown outcomes", batch.unknown)
        found = [delta.id for delta in batch.deltas if delta.id in there]
        expected.update(found)
        if batch.is_poisoned:
            _judge_poison(verdict, batch, found)
        elif batch.answers:
            missing = len(batch.deltas) - len(found)
            verdict.require(not missing, f"acknowledged, and {missing} of it are not there: {_name(batch)}")
            _judge_answers(verdict, batch)
        else:
            verdict.count("abandoned")
            verdict.require(len(found) in (0, len(batch.deltas)), f"{len(found)} of a batch are there: {_name(batch)}")
    verdict.require(there.keys() == expected, f"{len(there.keys() - expected)} deltas that nobody has pushed are there")


def _judge_poison(verdict: Verdict, batch: Batch, found: Sequence[bytes]) -> None:
    verdict.count("refusals", len(batch.answers))
    verdict.require(not found, f"refused, and {len(found)} of it are there: {_name(batch)}")
    for told in batch.answers:
        is_right = told.status in REFUSALS and REFUSALS[told.status] == told.body.get("code")
        verdict.require(is_right, f"a poisoned batch was answered {told}: {_name(batch)}")


def _judge_answers(verdict: Verdict, batch: Batch) -> None:
    total = len(batch.deltas)
    for number, told in enumerate(batch.answers):
        allowed = {total} if number else {0, total} if batch.unknown else {0}
        body = told.body
        is_right = told.status == 200 and body.get("accepted") == total and body.get("duplicates") in allowed
        verdict.require(is_right, f"answer {number} of {total} deltas, {batch.unknown} times unknown: {told}")


def _name(batch: Batch) -> str:
    return " ".join(delta.id.hex()[:8] for delta in batch.deltas)


def judge_numbers(verdict: Verdict, given: Iterable[Given]) -> None:
    """No push of anything new is answered with a number that a client had before it was sent, or with a smaller one."""
    by_time = sorted(given, key=lambda one: one.told_at)
    for gateway in sorted({one.gateway for one in by_time}):
        told = [one for one in by_time if one.gateway == gateway]
        highest, place = 0, 0
        for push in sorted((one for one in told if one.is_push), key=lambda one: one.asked_at):
            while place < len(told) and told[place].told_at < push.asked_at:
                highest = max(highest, told[place].number)
                place += 1
            verdict.require(push.number > highest, f"{gateway}: {push.number} was given after {highest}")


def judge_gateway(verdict: Verdict, gateway: Gateway) -> None:
    """The log, what was told of it, and what it comes to."""
    verdict.count("deltas", len(gateway.log))
    for before, after in pairwise(gateway.log):
        verdict.require(before.position < after.position, f"{gateway.name}: {after} stands behind {before}")
    for one in gateway.log:
        verdict.require(one.position >= one.hlc, f"{gateway.name}: {one} stands before its time")
    told = [(entry.id, entry.op) for entry in gateway.fresh]
    logged = [(one.id, one.entry_op) for one in gateway.log if one.entry_op is not None]
    verdict.require(told == logged, f"{gateway.name}: {len(told)} entries are told, {len(logged)} are in the log")
    for name, entries in gateway.readers.items():
        same = list(entries) == list(gateway.fresh)
        verdict.require(same, f"{gateway.name}: {name} was told {_difference(entries, gateway.fresh)}")
    counts = len(gateway.log), len(gateway.rows)
    shown = gateway.gauges.delta_count, gateway.gauges.index_size
    verdict.require(shown == counts, f"{gateway.name}: the gauges show {shown}, there are {counts}")


def _difference(entries: Sequence[DeltaEntry], fresh: Sequence[DeltaEntry]) -> str:
    for place, (one, other) in enumerate(zip(entries, fresh, strict=False)):
        if one != other:
            return f"{one} in place {place}, where {other} is due"
    return f"{len(entries)} entries, where {len(fresh)} are due"


def judge_rows(verdict: Verdict, gateway: Gateway, pushed: Mapping[bytes, Delta]) -> dict[tuple[str, str], Folded]:
    """The fold of the log is what is merged, and what a reader makes of the entries; it is returned."""
    deltas: dict[tuple[str, str], list[Delta]] = {}
    for one in gateway.log:
        delta = pushed.get(one.id)
        verdict.require(delta is not None, f"{gateway.name}: nobody has pushed {one}")
        if delta is not None:
            same = (one.op, one.hlc, one.columns_text.encode()) == (delta.op, delta.hlc, delta.columns_text)
            verdict.require(same, f"{gateway.name}: {delta} is stored as {one}")
            deltas.setdefault((delta.table, delta.row), []).append(delta)
    folded = {place: fold(some) for place, some in deltas.items()}
    merged = {(row.table, row.row): dict(row.columns) if row.is_live else None for row in gateway.rows}
    verdict.require(merged == {place: state.values for place, state in folded.items()}, f"{gateway.name}: other rows")
    live = {place: _set(state.columns) for place, state in folded.items() if state.is_live}
    verdict.require(replayed(gateway.fresh) == live, f"{gateway.name}: a reader comes to other rows")
    return folded


def replayed(entries: Iterable[DeltaEntry]) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of somebody who applies each entry as it comes; columns that are null are left out."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for entry in entries:
        place = entry.table, entry.row
        if entry.op is DeltaOp.DELETE:
            rows.pop(place, None)
        else:
            rows.setdefault(place, {}).update(values_of(entry))
    return {place: _set(row) for place, row in rows.items()}


def _set(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value != "null"}
