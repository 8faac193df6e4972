"""Which path belongs to which of two listeners."""

from __future__ import annotations

import pytest

from semel.server.listeners import PathPlace, Plane, place_of, plane_of
from semel.surfaces.jobs.surface import ROW as JOBS
from semel.surfaces.registry import surface_at


@pytest.mark.parametrize("path", [b"/metrics", b"/health", b"/livez", b"/readyz", b"/ready"])
def test_health_and_metrics_are_on_both(path: bytes) -> None:
    assert plane_of(path) is Plane.BOTH
    assert [place_of(path, listener) for listener in (Plane.DATA, Plane.CONTROL)] == [PathPlace.HERE, PathPlace.HERE]


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/stream/a",
        b"/v1/streams",
        b"/v1/events",
        b"/v1/jobs",
        b"/v1/jobs/claim",
        b"/mesh/submit_request",
        b"/ledger/v1/orgs",
        b"/ledger/v1",
        b"/v1/sync/gw/push",
        b"/sync/gw/pull",
        b"/v1/admin/flush/gw",
        b"/admin/metrics/gw",
        b"/v1/connectors/types",
        b"/connectors/types",
        b"/v1/sync",
        b"/admin",
    ],
)
def test_surfaces_are_data(path: bytes) -> None:
    assert place_of(path, Plane.DATA) is PathPlace.HERE
    assert place_of(path, Plane.CONTROL) is PathPlace.ELSEWHERE


def test_diagnosis_is_control() -> None:
    assert place_of(b"/v1/diagnose", Plane.DATA) is PathPlace.ELSEWHERE
    assert place_of(b"/v1/diagnose", Plane.CONTROL) is PathPlace.HERE


@pytest.mark.parametrize("path", [b"/", b"/v1", b"/v1/jobsx", b"/v1/diagnose/", b"/metricsx", b"/later/surface"])
def test_what_the_table_does_not_know_is_not_let_out_on_control(path: bytes) -> None:
    assert plane_of(path) is None
    assert place_of(path, Plane.CONTROL) is PathPlace.NOWHERE
    assert place_of(path, Plane.DATA) is PathPlace.HERE


def test_paths_of_jobs_are_refused_in_their_own_shape() -> None:
    assert all(surface_at(path) is JOBS for path in (b"/v1/jobs", b"/v1/jobs/dead", b"/mesh/results/submit"))
    assert not any(surface_at(path) is JOBS for path in (b"/v1/jobsx", b"/v1/events", b"/meshes"))
