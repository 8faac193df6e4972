"""A large push is decided in parts, so that memory holds one part at a time.

All parts are one transaction: all deltas are stored, or none. The checks that come before the first change are made
for all parts first, so that the answer does not depend on their order. Then each part is a push of the same client
without a pull in between, and the last part gives out the number that is the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

from semel.engine.contract import DecisionResult, LastWord
from semel.kernel.errors import Refusal
from semel.surfaces.deltas.commands import (
    DeltaCommand,
    DeltaFlaw,
    DeltasPushed,
    InspectPush,
    PushDeltas,
    PushInspected,
)
from semel.surfaces.deltas.rules.push import refusal_at

PART_DELTAS, PART_BYTES = 256, 256 * 1024
"""Limits of a part: deltas, and bytes of their columns; a single delta always fits."""

_Parts = Generator[DeltaCommand, DecisionResult | None, LastWord]


def is_large(push: PushDeltas) -> bool:
    """Whether a push is decided in parts from the start."""
    return len(push.deltas) > PART_DELTAS


def in_parts(push: PushDeltas) -> _Parts:
    """The parts of a push, and their common outcome."""
    refusal = yield from _inspected(push)
    if refusal is not None:
        return LastWord(DecisionResult(refusal), is_refused=True)
    waiting = deque(_slices(push))
    done: list[DecisionResult] = []
    has_begun = False
    while waiting:
        part = waiting.popleft()._replace(has_begun=has_begun, goes_on=bool(waiting))
        outcome = yield part
        if outcome is None and len(part.deltas) > 1:
            waiting.extendleft(reversed(_halves(part)))
            continue
        if outcome is None:
            outcome = yield part  # the part cannot be split further
        assert outcome is not None
        if isinstance(outcome.answer, Refusal):
            return LastWord(outcome, is_refused=True)
        done.append(outcome)
        has_begun = has_begun or outcome.answer.duplicates < outcome.answer.accepted
    return LastWord(_joined(done))


def _inspected(push: PushDeltas) -> Generator[DeltaCommand, DecisionResult | None, Refusal | None]:
    """The refusal of a push, by the first step that fails in any part."""
    found: tuple[dict[str, DeltaFlaw], ...] = ({}, {}, {})
    server_hlc = 0
    for part in _slices(push):
        outcome = yield InspectPush(part)
        assert outcome is not None, "what it looks at is small"
        answer = outcome.answer
        assert isinstance(answer, PushInspected)
        server_hlc = answer.server_hlc
        for flaws, more in zip(found, answer.flaws, strict=True):
            for flaw in more:
                flaws.setdefault(flaw.delta_id, flaw)
    return refusal_at(tuple(list(flaws.values()) for flaws in found), server_hlc)


def _slices(push: PushDeltas) -> Iterator[PushDeltas]:
    start = size = 0
    for place, delta in enumerate(push.deltas):
        size += len(delta.columns_text)
        if place > start and (place - start == PART_DELTAS or size > PART_BYTES):
            yield push._replace(deltas=push.deltas[start:place], start=push.start + start)
            start, size = place, len(delta.columns_text)
    yield push._replace(deltas=push.deltas[start:], start=push.start + start)


def _halves(push: PushDeltas) -> list[PushDeltas]:
    middle = len(push.deltas) // 2
    later = push._replace(deltas=push.deltas[middle:], start=push.start + middle)
    return [push._replace(deltas=push.deltas[:middle]), later]


def _joined(done: list[DecisionResult]) -> DecisionResult:
    answers: list[DeltasPushed] = [outcome.answer for outcome in done]
    answer = DeltasPushed(
        answers[-1].server_hlc,
        sum(one.accepted for one in answers),
        sum(one.duplicates for one in answers),
        tuple(entry for one in answers for entry in one.entries),
        next((one.first for one in answers if one.first), 0),
        tuple(known for one in answers for known in one.known),
    )
    signals = dict.fromkeys(signal for outcome in done for signal in outcome.signals)
    return DecisionResult(answer, tuple(signals), done[-1].touches)
