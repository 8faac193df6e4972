"""RFC 9112: what is refused is refused however its bytes arrive, and nothing behind it is run as a request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.http.corpus import CANARY, LAST, REFUSED, SERVED, SWALLOWED
from tests.server.http.wire import Listening

WAYS = ("whole", "byte by byte")
LARGE = b"POST /large HTTP/1.1\r\nHost: h\r\nContent-Length: 40000\r\n\r\n" + b"0123456789" * 4_000
REQUESTS = {**{name: sent for name, (sent, _) in SERVED.items()}, "a large body": LARGE}


@pytest.fixture(scope="module")
def listening() -> Iterator[Listening]:
    with Listening().running() as running:
        yield running


def sent_so(sent: bytes, way: str) -> list[bytes]:
    return [sent] if way == "whole" else [sent[place : place + 1] for place in range(len(sent))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_rfc_9112_refuses_ends_its_connection(name: str, way: str, listening: Listening) -> None:
    sent, status = REFUSED[name]
    outcome = listening.told(sent_so(sent + CANARY, way))
    assert (outcome.statuses, outcome.is_closed) == ([status], True)
    assert b"/canary" not in outcome.paths


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SERVED)
def test_a_request_that_rfc_9112_allows_is_served_and_the_next_one_too(
    name: str, way: str, listening: Listening
) -> None:
    sent, told = SERVED[name]
    outcome = listening.told(sent_so(sent + CANARY, way), 2)
    assert outcome.bodies == [told, b"GET /canary? "]
    assert (outcome.statuses, outcome.is_closed) == ([200, 200], False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAST)
def test_nothing_is_run_behind_the_last_request_of_a_connection(name: str, way: str, listening: Listening) -> None:
    outcome = listening.told(sent_so(LAST[name] + CANARY, way))
    assert (outcome.statuses, outcome.is_closed, outcome.paths) == ([200], True, [b"/x"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SWALLOWED)
def test_nothing_is_run_behind_a_request_that_has_not_ended(name: str, way: str, listening: Listening) -> None:
    outcome = listening.told(sent_so(SWALLOWED[name] + CANARY, way), 0)
    assert (outcome.statuses, b"/canary" in outcome.paths) == ([], False)


names = st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=8)
places = st.lists(st.floats(0, 1), max_size=12)


def cut(sent: bytes, shares: list[float]) -> list[bytes]:
    """The bytes in pieces, cut at these shares of their length."""
    ends = [0, *sorted(int(share * len(sent)) for share in shares), len(sent)]
    return [sent[begin:end] for begin, end in pairwise(ends) if end > begin]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(chosen=names, shares=places)
def test_valid_requests_in_any_pieces_are_answered_alike(
    listening: Listening, chosen: list[str], shares: list[float]
) -> None:
    sent = b"".join(REQUESTS[name] for name in chosen)
    expected = listening.told([sent], len(chosen))
    assert expected.statuses == [200] * len(chosen)
    assert listening.told(cut(sent, shares), len(chosen)) == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(chosen=names, broken=st.sampled_from(sorted(REFUSED)), shares=places)
def test_a_broken_request_in_any_pieces_is_refused_behind_the_others(
    listening: Listening, chosen: list[str], broken: str, shares: list[float]
) -> None:
    sent, status = REFUSED[broken]
    outcome = listening.told(cut(b"".join(REQUESTS[name] for name in chosen) + sent, shares))
    assert (outcome.statuses, outcome.is_closed) == ([200] * len(chosen) + [status], True)
