"""The quick paths of a push give what the full ones give."""

from __future__ import annotations

import pytest

from semel.kernel.hashes import json_text
from semel.surfaces.deltas.rules import last_writer_wins, rows
from semel.surfaces.deltas.rules.last_writer_wins import dump_state, load_state
from semel.surfaces.deltas.rules.log import GatewayLog
from semel.surfaces.deltas.wire import plain_delta as quick_reader
from tests.deltas.rules.differential import compare

SEEDS = range(20)
STEPS = 80


def test_the_same_pushes_have_the_same_answers_and_rows_on_both_paths() -> None:
    runs = [compare(seed, STEPS) for seed in SEEDS]
    assert sum(run.plain for run in runs) > 500
    assert sum(run.created for run in runs) > 200
    assert sum(run.refused for run in runs) > 20
    assert sum(run.whole for run in runs) > 100
    assert sum(run.deltas - run.plain for run in runs) > 200


def _wrong_mark(log: GatewayLog, *arguments: object) -> bytes:
    stored = _add_first(log, *arguments)  # type: ignore[arg-type]
    log.authors = ()
    return stored


_add_first = GatewayLog.add_first
MISTAKES = {
    "a late value is printed with an exponent": (quick_reader, "_SAFE", 10**26),
    "a column may have any name": (quick_reader, "is_name", lambda text: True),
    "a member may be there twice": (quick_reader, "lost_members", lambda raw, printed: False),
    "a delta may have other members": (quick_reader, "_MEMBERS", 8),
    "a deleted row is created": (rows, "creates_row", lambda delta: True),
    "a row has no end of its log": (GatewayLog, "add_first", _wrong_mark),
    "an insert is no turn": (last_writer_wins, "_turns", lambda entries: ()),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_quick_path_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, mistake = MISTAKES[name]
    monkeypatch.setattr(place, attribute, mistake)
    with pytest.raises(Exception):  # noqa: B017, PT011 - a difference, or a decision that fails
        _ = [compare(seed, STEPS) for seed in SEEDS]


def test_a_created_row_has_the_stored_form_of_its_state() -> None:
    stored = b'[7,"\\"a\\"","00",9,1,[{"column":"c","value":"x"}]]'
    state = load_state(json_text("r"), stored)
    assert dump_state(state) == stored
    state.gone["d"] = None
    assert dump_state(state) != stored
    assert load_state(json_text("r"), dump_state(state)) == state
