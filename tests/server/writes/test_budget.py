"""A look-up without a place ends with its budget, and says so; with the place it is exact, whatever the budget."""

from __future__ import annotations

import pytest

from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER
from semel.server.auth.principals import DEVELOPER, AccessScope, Principal, Role
from semel.server.writes import lookup
from semel.server.writes.lookup import FoundWrites, ProbeBudget, WriteQuery, find_writes
from semel.surfaces.jobs.find import find as find_jobs
from semel.surfaces.jobs.tables import JOB_TENANT, JobTenantRow
from semel.surfaces.registry import SURFACES
from semel.surfaces.streams.find import HINT
from semel.surfaces.streams.find import find as find_streams
from semel.surfaces.streams.tables import PRODUCER, STREAM, ProducerRow, StreamRow
from tests.server.writes.looked import looked

STREAMS = 40


def stream(number: int) -> StreamRow:
    name, life = b"s/%02d" % number, number.to_bytes(16, "big")
    return StreamRow(pack(name), name, life, b"text/plain", None, None, None, NEVER, 1, 1, 0, 0, None, None, None, None)


def producers(
    probes: int, place: bytes | None = None, seconds: float = 9.0, caller: Principal = DEVELOPER
) -> FoundWrites:
    """The producer `p` in 40 streams, with a clock that advances by a second at each look."""
    streams = [stream(number) for number in range(STREAMS)]
    known = [ProducerRow(row.scope, pack(b"p"), row.id, 0, 0) for row in streams]
    clock = iter(float(number) for number in range(1_000_000))
    budget = ProbeBudget(probes, seconds, lambda: next(clock))
    query = WriteQuery(b"p", place, caller, True)
    return looked(
        {STREAM: streams, PRODUCER: known}, lambda reading: find_writes(reading, query, [find_streams], budget)
    )


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "PAGE_SCOPES", 7)


def test_a_budget_that_is_large_enough_is_complete() -> None:
    for probes in (STREAMS, STREAMS + 1, 1_000):
        found = producers(probes)
        assert [one.place for one in found.writes] == [f"s/{number:02}" for number in range(STREAMS)]
        assert found.is_complete


@pytest.mark.parametrize("probes", [0, 1, 7, 20, STREAMS - 1])
def test_a_budget_of_probes_ends_the_look_up_and_says_so(probes: int) -> None:
    found = producers(probes)
    assert len(found.writes) == probes
    assert (found.is_complete, found.hints) == (False, [HINT])


def test_a_budget_of_time_ends_the_look_up_after_a_page() -> None:
    found = producers(1_000, seconds=2.0)
    assert (len(found.writes), found.hints) == (14, [HINT])


def test_a_place_needs_no_budget() -> None:
    found = producers(0, b"s/33")
    assert ([one.place for one in found.writes], found.is_complete) == (["s/33"], True)


def test_only_streams_within_the_scopes_are_tried_and_count() -> None:
    scopes = (AccessScope("streams", b"s/1", True), AccessScope("streams", b"s/39", False))
    found = producers(11, caller=Principal("ada", "client", frozenset({Role.READ}), scopes))
    assert [one.place for one in found.writes] == [*(f"s/1{number}" for number in range(10)), "s/39"]
    assert found.is_complete


def test_more_matches_than_an_answer_holds_are_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MAX_MATCHES", 5)
    found = producers(1_000)
    assert (len(found.writes), found.is_complete) == (5, False)
    assert "name the place" in found.hints[0]


@pytest.mark.parametrize("probes", [0, 9, 30])
def test_principals_that_were_not_tried_are_told(probes: int) -> None:
    rows = [JobTenantRow(b"user-%02d" % number, 1) for number in range(30)]
    budget = ProbeBudget(probes, 1.0, lambda: 0.0)
    query = WriteQuery(b"k", None, DEVELOPER, True)
    found = looked({JOB_TENANT: rows}, lambda reading: find_writes(reading, query, [find_jobs], budget))
    assert found.is_complete == (probes == 30)


def test_every_surface_can_be_searched() -> None:
    assert [row.name for row in SURFACES if row.find is None] == []
