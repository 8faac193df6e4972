"""Many sequences of one client on their way at once, in any order and any batches: decided as if in order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from semel.engine.batch_runner import BatchLimits
from semel.engine.contract import Write
from semel.engine.engine import EngineLimits
from semel.engine.generations import GENERATION
from semel.store.memory import MemoryStore
from semel.surfaces.ledger.commands import (
    CHANCE_BYTES,
    CreateOrg,
    FreePlace,
    OpenTerm,
    WriteCommand,
    WriteCommitted,
    WriteErrorCode,
)
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import PIPELINE, LedgerLimits
from semel.surfaces.ledger.model import ConditionKind, LedgerPlace, Operation, SetCondition, SetEntity
from semel.surfaces.ledger.tables import TABLES
from semel.surfaces.ledger.validation import prepare, write_command
from tests.engine.toy import ToyWorld
from tests.harness.simulation import Processes

ORG = 7001
NOTHING = FreePlace(LedgerPlace(1), 1)
SET: Operation = SetEntity(b"k", b"v")
FAILS: Operation = SetEntity(b"nothing", b"v", condition=SetCondition(ConditionKind.MUST_EXIST))


def command(sequence: int, operation: Operation) -> WriteCommand:
    """One write of the one client."""
    chance = sequence.to_bytes(CHANCE_BYTES, "big")
    return write_command(
        LedgerLimits(),
        prepare(LedgerLimits(), LedgerPlace(ORG), b"ann", sequence, b"", (operation,)),
        b"client:ann",
        b"n",
        chance,
    )


def decide(commands: list[WriteCommand], batch: int) -> dict[int, Any]:
    """The answers by sequence, of an engine that begins when all of them wait."""

    async def run() -> list[Any]:
        world = ToyWorld()
        limits = EngineLimits(batch=BatchLimits(writes=batch))
        processes = Processes(MemoryStore((GENERATION, *TABLES), world.wall_ms), world, limits)
        processes.start()
        try:
            for made in (OpenTerm(b"", b"secret"), CreateOrg(b"org", (ORG,), b"", b"")):
                await processes.submit(Write(ledger, made))
            return await processes.submit_all((Write(ledger, one) for one in commands), Write(ledger, NOTHING))
        finally:
            await processes.stop()

    ledger = LedgerContract()
    answers = asyncio.run(run())
    return {one.write.sequence or 0: answer for one, answer in zip(commands, answers, strict=True)}


@pytest.mark.parametrize("batch", [1, 2, 7, 512])
@pytest.mark.parametrize("seed", range(4))
def test_a_pipeline_is_decided_in_its_order(seed: int, batch: int) -> None:
    numbers = list(range(1, PIPELINE + 1))
    random.Random(seed).shuffle(numbers)
    answers = decide([command(number, SET) for number in numbers], batch)
    for number in numbers:
        assert isinstance(answers[number], WriteCommitted)
        assert answers[number].committed.header.height == number


@pytest.mark.parametrize("batch", [1, 2, 7, 512])
@pytest.mark.parametrize("failing", [1, 5, 20])
def test_behind_one_that_fails_all_others_are_gaps(failing: int, batch: int) -> None:
    numbers = list(range(1, 31))
    random.Random(failing).shuffle(numbers)
    answers = decide([command(number, FAILS if number == failing else SET) for number in numbers], batch)
    assert [number for number in numbers if isinstance(answers[number], WriteCommitted)] == [
        number for number in numbers if number < failing
    ]
    assert answers[failing].code is WriteErrorCode.KEY_NOT_FOUND
    for number in range(failing + 1, 31):
        assert (answers[number].code, answers[number].last) == (WriteErrorCode.SEQUENCE_GAP, failing - 1)


@pytest.mark.parametrize("batch", [1, 512])
def test_a_hole_in_the_pipeline_is_waited_for_by_nobody(batch: int) -> None:
    answers = decide([command(number, SET) for number in (4, 2, 5, 1)], batch)
    assert [type(answers[number]) is WriteCommitted for number in (1, 2, 4, 5)] == [True, True, False, False]
    assert {answers[4].code, answers[5].code} == {WriteErrorCode.SEQUENCE_GAP}
