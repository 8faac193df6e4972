"""A push that is decided in parts is one push: all of its deltas or none, each once, judged as a whole."""

from __future__ import annotations

from itertools import islice

from semel.surfaces.deltas.rules.large_push import PART_DELTAS
from tests.deltas.rig import check_nothing_stored
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, hlcs

MANY = 3 * PART_DELTAS
FUTURE = 2**63
"""A clock that is far ahead."""


def inserts(count: int) -> list[Message]:
    """New rows, one delta each."""
    return [
        delta("INSERT", columns(title="x"), row=f"r{number}", hlc=hlc)
        for number, hlc in enumerate(islice(hlcs(), count))
    ]


def wide(part: int, hlc: int) -> Message:
    """More than half of the columns that a row may have."""
    return delta("UPDATE", [{"column": f"c{part}_{number}", "value": 1} for number in range(600)], row="w", hlc=hlc)


def test_a3_a_push_in_parts_is_stored_in_order_and_told_once(deltas: Deltas, gateway: str) -> None:
    made = inserts(MANY)
    told = deltas.push(gateway, made)
    assert told["accepted"] == MANY
    assert told.ids == [one["deltaId"] for one in made]
    assert deltas.log(gateway) == made
    again = deltas.push(gateway, made)
    assert (again["accepted"], again["duplicates"]) == (MANY, MANY)
    assert deltas.log(gateway) == made


def test_a3_a_delta_that_comes_again_in_a_later_part_is_known(deltas: Deltas, gateway: str) -> None:
    made = inserts(MANY)
    told = deltas.push(gateway, [*made, *made[:3]])
    assert (told["accepted"], told["duplicates"]) == (MANY + 3, 3)
    assert deltas.log(gateway) == made


def test_a3_nothing_of_a_push_is_stored_when_its_last_part_is_refused(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", title="string")
    wrong = delta("INSERT", columns(strange="x"), row="last", hlc=next(hlcs()))
    told = deltas.push(gateway, [*inserts(MANY), wrong], expect=422)
    assert told.blamed == [(MANY, "SCHEMA_ERROR")]
    check_nothing_stored(deltas, gateway)


def test_a3_nothing_of_a_push_is_stored_when_a_row_outgrows_its_bound_in_the_last_part(
    deltas: Deltas, gateway: str
) -> None:
    first, *between, last = hlcs_of(MANY + 2)
    rows = [delta("INSERT", columns(title="x"), row=f"r{hlc}", hlc=hlc) for hlc in between]
    told = deltas.push(gateway, [wide(0, first), *rows, wide(1, last)], expect=413)
    assert (MANY + 1, "VALIDATION_ERROR") in told.blamed
    check_nothing_stored(deltas, gateway)


def test_a3_a_push_in_parts_is_judged_step_by_step_for_all_of_it(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", title="string")
    early = delta("INSERT", columns(title="x"), row="early", hlc=FUTURE)
    wrong = delta("INSERT", columns(strange="x"), row="last", hlc=next(hlcs()))
    told = deltas.push(gateway, [early, *inserts(MANY), wrong], expect=422)
    assert told.code == "SCHEMA_ERROR"
    told = deltas.push(gateway, [early, *inserts(MANY)], expect=409)
    assert told.blamed == [(0, "CLOCK_DRIFT")]


def test_a3_rows_that_are_too_large_together_are_pushed_to_one_by_one(deltas: Deltas, gateway: str) -> None:
    times = hlcs()
    rows = [f"r{number}" for number in range(5)]
    for row in rows:
        deltas.push(gateway, [delta("INSERT", columns(text="x" * 900_000), row=row, hlc=next(times))])
    more = [delta("UPDATE", columns(title="y"), row=row, hlc=next(times)) for row in rows]
    assert deltas.push(gateway, more).ids == [one["deltaId"] for one in more]
    assert deltas.log(gateway, client=CLIENT + "2")[-5:] == more


def hlcs_of(count: int) -> list[int]:
    """Rising times."""
    return list(islice(hlcs(), count))
