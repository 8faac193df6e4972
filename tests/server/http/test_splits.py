"""However the bytes of pipelined requests are cut into reads, the requests and the answers are the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.http.corpus import REFUSED, SERVED
from tests.server.http.wire import fed

LARGE = b"POST /large HTTP/1.1\r\nHost: h\r\nContent-Length: 40000\r\n\r\n" + b"0123456789" * 4_000
REQUESTS = {**{name: sent for name, (sent, _) in SERVED.items()}, "a large body": LARGE}

names = st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=8)
places = st.lists(st.floats(0, 1), max_size=12)


def cut(sent: bytes, shares: list[float]) -> list[bytes]:
    """The bytes in pieces, cut at these shares of their length."""
    ends = [0, *sorted(int(share * len(sent)) for share in shares), len(sent)]
    return [sent[begin:end] for begin, end in pairwise(ends) if end > begin]


@settings(max_examples=300, deadline=None)
@given(chosen=names, shares=places)
def test_valid_requests_in_any_pieces_are_answered_alike(chosen: list[str], shares: list[float]) -> None:
    sent = b"".join(REQUESTS[name] for name in chosen)
    expected = fed([sent])
    assert expected.statuses == [200] * len(chosen)
    assert fed(cut(sent, shares)) == expected


@settings(max_examples=200, deadline=None)
@given(chosen=names, broken=st.sampled_from(sorted(REFUSED)), shares=places)
def test_a_broken_request_in_any_pieces_is_refused_behind_the_others(
    chosen: list[str], broken: str, shares: list[float]
) -> None:
    sent, status = REFUSED[broken]
    outcome = fed(cut(b"".join(REQUESTS[name] for name in chosen) + sent, shares))
    assert (outcome.statuses, outcome.is_closed) == ([200] * len(chosen) + [status], True)
