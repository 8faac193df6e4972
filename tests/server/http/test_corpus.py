"""RFC 9112: what is refused is refused however its bytes arrive, and nothing behind it is run as a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.http.corpus import CANARY, LAST, REFUSED, SERVED, SWALLOWED
from tests.server.http.wire import Listening, Outcome, fed

WAYS = ("whole", "byte by byte", "socket")


@pytest.fixture(scope="module")
def listening() -> Iterator[Listening]:
    with Listening().running() as running:
        yield running


def came_of(sent: bytes, way: str, listening: Listening) -> Outcome:
    if way == "whole":
        return fed([sent])
    if way == "byte by byte":
        return fed(sent[place : place + 1] for place in range(len(sent)))
    return listening.told(sent)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_rfc_9112_refuses_ends_its_connection(name: str, way: str, listening: Listening) -> None:
    sent, status = REFUSED[name]
    outcome = came_of(sent + CANARY, way, listening)
    assert (outcome.statuses, outcome.is_closed) == ([status], True)
    assert b"/canary" not in outcome.paths


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SERVED)
def test_a_request_that_rfc_9112_allows_is_served_and_the_next_one_too(
    name: str, way: str, listening: Listening
) -> None:
    sent, told = SERVED[name]
    outcome = came_of(sent + CANARY, way, listening)
    assert outcome.bodies == [told, b"GET /canary? "]
    assert (outcome.statuses, outcome.is_closed) == ([200, 200], False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAST)
def test_nothing_is_run_behind_the_last_request_of_a_connection(name: str, way: str, listening: Listening) -> None:
    outcome = came_of(LAST[name] + CANARY, way, listening)
    assert (outcome.statuses, outcome.is_closed, outcome.paths) == ([200], True, [b"/x"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SWALLOWED)
def test_nothing_is_run_behind_a_request_that_has_not_ended(name: str, way: str, listening: Listening) -> None:
    outcome = came_of(SWALLOWED[name] + CANARY, way, listening)
    assert (outcome.statuses, b"/canary" in outcome.paths) == ([], False)


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_waits_behind_the_answer_to_the_request_before(name: str, way: str, listening: Listening) -> None:
    sent, status = REFUSED[name]
    outcome = came_of(CANARY.replace(b"canary", b"before") + sent, way, listening)
    assert (outcome.statuses, outcome.bodies[0]) == ([200, status], b"GET /before? ")
