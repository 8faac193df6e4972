"""Logs: what is complained of again and again does not fill the disk, and nothing else is held back."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest

from semel.server.ops.logs import MAX_COMPLAINTS, TOLD_AT_ONCE, TOLD_SECONDS, Calm, JsonFormatter

START = 1_760_000_000.0


def record(message: str = "the store is away", at: float = START, level: str = "WARNING", **facts: object) -> Any:
    usual = {"name": "semel", "msg": message, "levelname": level, "levelno": getattr(logging, level), "created": at}
    return logging.makeLogRecord(usual | facts)


def told(calm: Calm, *records: logging.LogRecord) -> list[bool]:
    return [calm.filter(one) for one in records]


def test_the_first_ones_are_told_and_the_rest_counted() -> None:
    calm = Calm()
    more = 5
    assert told(calm, *[record() for _ in range(TOLD_AT_ONCE + more)]) == [True] * TOLD_AT_ONCE + [False] * more
    later = record(at=START + TOLD_SECONDS)
    assert calm.filter(later)
    assert orjson.loads(JsonFormatter().format(later))["left_out"] == more
    again = record(at=START + TOLD_SECONDS)
    assert calm.filter(again)
    assert "left_out" not in orjson.loads(JsonFormatter().format(again))


def test_a_quiet_while_leaves_nothing_out() -> None:
    calm = Calm()
    for number in range(10 * TOLD_AT_ONCE):
        one = record(at=START + number * TOLD_SECONDS)
        assert calm.filter(one)
        assert not hasattr(one, "left_out")


@pytest.mark.parametrize(
    "other", [{"message": "another"}, {"name": "semel.jobs"}, {"level": "INFO"}, {"error_id": "e"}]
)
def test_others_are_told(other: dict[str, Any]) -> None:
    """Other complaints, what is no complaint, and every fault that somebody was given the id of."""
    calm = Calm()
    told(calm, *[record() for _ in range(2 * TOLD_AT_ONCE)])
    assert not calm.filter(record())
    assert calm.filter(record(**other))


@pytest.mark.parametrize("unlimited", [{"level": "INFO"}, {"error_id": "e"}])
def test_what_is_never_held_back(unlimited: dict[str, Any]) -> None:
    assert all(told(Calm(), *[record(**unlimited) for _ in range(10 * TOLD_AT_ONCE)]))


def test_a_clock_that_goes_back_holds_nothing_back() -> None:
    calm = Calm()
    told(calm, *[record() for _ in range(2 * TOLD_AT_ONCE)])
    earlier = record(at=START - 3_600)
    assert calm.filter(earlier)
    assert earlier.left_out == TOLD_AT_ONCE


def test_many_complaints_are_not_kept_apart_for_ever() -> None:
    calm = Calm()
    told(calm, *[record(f"complaint {number}") for number in range(10 * MAX_COMPLAINTS)])
    assert len(calm._complaints) <= MAX_COMPLAINTS
