"""Job calls whose heads are known by their bytes have the same answers as on the full path."""

from __future__ import annotations

import asyncio
import re
from unittest.mock import patch

import pytest

from semel.server.http.head_shapes import CutHead, cut
from semel.surfaces.jobs import shaped_calls
from semel.surfaces.jobs.wire import quick
from tests.jobs.shapes import bodies
from tests.jobs.shapes.differential import compare

CASES = 400
PREFIX = b"POST /v1/jobs/job_"
HEAD = PREFIX + b"%b/complete HTTP/1.1\r\nHost: x\r\n\r\n{}"


def test_calls_by_shape_and_by_the_full_path_have_the_same_answers_counts_and_jobs() -> None:
    taken = asyncio.run(compare(1, CASES))
    assert taken["ShapedSubmit"] > CASES / 20
    assert taken["ShapedClaim"] > CASES / 30
    assert taken["ShapedReport"] > CASES / 60


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("_ACTED_ON", ()),
        ("_QUICK", {"J1": False, "J2": False, "J3": False}),
        ("_REPLAYED_HEADERS", b""),
    ],
)
def test_a_planted_difference_of_shapes_is_found(name: str, planted: object) -> None:
    with patch.object(shaped_calls, name, planted), pytest.raises(AssertionError):
        asyncio.run(compare(1, CASES))


def test_the_quick_parser_takes_only_what_the_full_parser_takes_with_the_same_result() -> None:
    taken = bodies.compare(1, 20_000)
    assert min(taken[kind] for kind in ("submission", "claim", "report")) > 2_000


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("_has_only_integers", lambda outside: True),
        ("KIND_RULE", re.compile(".*")),
        ("MAX_KEY_CHARACTERS", 300),
        ("DEFAULT_PRIORITY", 5),
    ],
)
def test_a_planted_difference_of_the_quick_parser_is_found(name: str, planted: object) -> None:
    with patch.object(quick, name, planted), pytest.raises(AssertionError):
        bodies.compare(1, 20_000)


def test_a_name_in_the_path_is_cut_out() -> None:
    found = cut(HEAD % b"0a1b", prefixes=(PREFIX,))
    assert found == CutHead(PREFIX + b"/complete HTTP/1.1\r\nHost: x", b"0a1b", len(PREFIX), len(HEAD % b"0a1b") - 2)


@pytest.mark.parametrize("name", [b"", b"a%62", b"a b", b"a?b", b"a.b", b"x" * 65, b"caf\xc3\xa9"])
def test_an_odd_name_in_the_path_has_no_shape(name: bytes) -> None:
    assert cut(HEAD % name, prefixes=(PREFIX,)) is None
