"""The queue of transactions: its groups and their order, and what happens to a group that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from semel.engine.contract import FaultError, NotStoredError, Write
from semel.surfaces.ledger.commands import WriteCommand, WriteMany, WriteWaits
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerLimits
from semel.surfaces.ledger.model import LedgerPlace, SetEntity
from semel.surfaces.ledger.rules.group_rows import TreeChanges
from semel.surfaces.ledger.rules.plain_write import PlainGroup
from semel.surfaces.ledger.rules.write import ManyAnswers, order_of
from semel.surfaces.ledger.validation import prepare, write_command
from semel.surfaces.ledger.write_queue import GROUP_BYTES, QueuedTransaction, WriteQueue, groups_of, in_sequence

LIMITS = LedgerLimits()


def command(
    client: bytes = b"ann", sequence: int | None = 1, key: bytes = b"", org: int = 1, value: bytes = b"", count: int = 1
) -> WriteCommand:
    operations = tuple(SetEntity(b"key-%d" % number, value) for number in range(count))
    prepared = prepare(LIMITS, LedgerPlace(org), client, sequence, key, operations)
    return write_command(LIMITS, prepared, b"client:me", b"node", bytes(10))


class Verdicts:
    """Keeps the verdicts by number."""

    def __init__(self) -> None:
        self.told: dict[int, Any] = {}

    def settle(self, number: int, answer: Any) -> None:
        assert number not in self.told
        self.told[number] = answer

    def fail(self, number: int, error: BaseException) -> None:
        self.settle(number, error)


def queued(*commands: WriteCommand, principal: str = "") -> list[QueuedTransaction]:
    return [QueuedTransaction(one, principal, Verdicts(), number) for number, one in enumerate(commands)]


def sizes(waiting: list[QueuedTransaction]) -> list[int]:
    return [len(group) for group in groups_of(waiting)]


def test_a_group_has_transactions_of_one_organization_and_one_principal() -> None:
    some = queued(command(sequence=1), command(sequence=1, org=2), command(sequence=2), command(sequence=2, org=2))
    assert [[one.command.write.place.org for one in group] for group in groups_of(some)] == [[1, 1], [2, 2]]
    assert sizes([*queued(command(sequence=1)), *queued(command(sequence=2), principal="other")]) == [1, 1]


def test_a_group_is_bounded_in_number_and_bytes() -> None:
    assert sizes(queued(*(command(sequence=number) for number in range(1, 101)))) == [64, 36]
    assert (
        sizes(queued(*(command(sequence=number, value=bytes(GROUP_BYTES // 2)) for number in range(1, 4)))) == [1] * 3
    )
    assert sizes(queued(*(command(sequence=number, count=7) for number in range(1, 4)))) == [2, 1]
    assert sizes(queued(command(sequence=1, count=1_000), command(sequence=2))) == [1, 1]


def test_the_same_identity_is_not_twice_in_a_group() -> None:
    assert sizes(queued(command(sequence=1), command(sequence=1))) == [1, 1]
    key = b"k" * 16
    assert sizes(queued(command(sequence=1, key=key), command(sequence=2, key=key))) == [1, 1]
    assert sizes(queued(command(sequence=1, key=key), command(b"bob", sequence=1, key=key))) == [2]
    keys = [bytes((number,)) * 16 for number in range(1, 4)]
    assert sizes(queued(*(command(sequence=None, key=one) for one in keys))) == [3]


def test_transactions_of_a_client_swap_places_so_that_sequences_rise() -> None:
    some = queued(
        command(sequence=3), command(b"bob", sequence=7), command(sequence=1), command(sequence=None, key=b"k" * 16)
    )
    ordered = [(one.command.write.client, one.command.write.sequence) for one in in_sequence(some)]
    assert ordered == [(b"ann", 1), (b"bob", 7), (b"ann", 3), (b"ann", None)]


class FakeEngine:
    """Keeps admitted writes until they are answered."""

    is_shared = False

    def __init__(self) -> None:
        self.admitted: list[tuple[WriteMany, Any]] = []
        self.error: Exception | None = None
        self.plain = 0

    def admit(self, write: Write, caller: Any) -> None:
        if self.error is not None:
            raise self.error
        self.admitted.append((write.command, caller))

    def admit_plain(self, group: PlainGroup) -> None:
        if self.error is not None:
            raise self.error
        self.plain += 1
        self.admitted.append((group.full().command, group))


def with_queue(scene: Callable[[WriteQueue, FakeEngine, LedgerContract], Any]) -> None:
    async def run() -> None:
        engine, ledger = FakeEngine(), LedgerContract()
        await scene(WriteQueue(engine, ledger), engine, ledger)  # type: ignore[arg-type]

    asyncio.run(run())


def answered(answers: list[Any]) -> ManyAnswers:
    return ManyAnswers(answers, TreeChanges())


def test_what_arrives_in_one_pass_is_one_group_and_each_gets_its_verdict() -> None:
    async def scene(queue: WriteQueue, engine: FakeEngine, ledger: LedgerContract) -> None:
        verdicts = Verdicts()
        for number in (1, 2, 3):
            queue.add(command(sequence=number), "", verdicts, number)
        await asyncio.sleep(0)
        [(many, caller)] = engine.admitted
        assert [one.write.sequence for one in many.writes] == [1, 2, 3]
        assert all(ledger.is_queued(order_of(one)) for one in many.writes)  # type: ignore[arg-type]
        caller.settle(answered(["a", "b", "c"]))
        assert verdicts.told == {1: "a", 2: "b", 3: "c"}
        assert not any(ledger.is_queued(order_of(one)) for one in many.writes)  # type: ignore[arg-type]

    with_queue(scene)


def test_a_group_is_plain_if_all_of_its_transactions_may_be() -> None:
    async def scene(queue: WriteQueue, engine: FakeEngine, ledger: LedgerContract) -> None:
        verdicts = Verdicts()
        for number, count in enumerate((1, 1, 1, 2), 1):
            queue.add(command(sequence=number, count=count), "", verdicts, number)
            if number == 2:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        (first, plain), (second, caller) = engine.admitted
        assert (len(first.writes), len(second.writes), engine.plain) == (2, 2, 2)
        assert (plain.is_plain, caller.is_plain) == (True, False), "it is behind a plain group that is not decided"
        assert (plain.lock, plain.size, plain.cost) == (
            b"ledger:1",
            sum(len(one.write.encoded) for one in first.writes),
            4,
        )
        plain.settle(answered(["a", "b"]))
        caller.settle(answered(["c", "d"]))
        assert verdicts.told == {1: "a", 2: "b", 3: "c", 4: "d"}
        queue.add(command(sequence=5, count=2), "", verdicts, 5)
        await asyncio.sleep(0)
        assert engine.plain == 2, "no plain group is before it"
        queue.add(command(sequence=1, org=2), "", verdicts, 6)
        queue.add(command(sequence=6, count=2), "", verdicts, 7)
        await asyncio.sleep(0)
        assert engine.plain == 3, "a plain group of another organization is not before it"

    with_queue(scene)


def test_a_transaction_that_waits_is_queued_again() -> None:
    async def scene(queue: WriteQueue, engine: FakeEngine, ledger: LedgerContract) -> None:
        verdicts = Verdicts()
        queue.add(command(sequence=2), "", verdicts, 2)
        await asyncio.sleep(0)
        engine.admitted[0][1].settle(answered([WriteWaits()]))
        queue.add(command(sequence=1), "", verdicts, 1)
        await asyncio.sleep(0)
        assert verdicts.told == {}
        many, caller = engine.admitted[1]
        assert [one.write.sequence for one in many.writes] == [1, 2]
        caller.settle(answered(["one", "two"]))
        assert verdicts.told == {1: "one", 2: "two"}

    with_queue(scene)


def test_a_transaction_does_not_wait_without_end() -> None:
    async def scene(queue: WriteQueue, engine: FakeEngine, ledger: LedgerContract) -> None:
        verdicts = Verdicts()
        queue.add(command(sequence=2), "", verdicts, 2)
        for _ in range(64):
            await asyncio.sleep(0)
            many, caller = engine.admitted.pop()
            assert many.may_wait
            caller.settle(answered([WriteWaits()]))
        await asyncio.sleep(0)
        assert not engine.admitted.pop()[0].may_wait

    with_queue(scene)


def test_after_a_fault_each_transaction_of_the_group_is_tried_alone() -> None:
    async def scene(queue: WriteQueue, engine: FakeEngine, ledger: LedgerContract) -> None:
        verdicts = Verdicts()
        for number in (1, 2):
            queue.add(command(sequence=number), "", verdicts, number)
        await asyncio.sleep(0)
        engine.admitted.pop()[1].fail(FaultError("f"))
        (first, one), (second, other) = engine.admitted
        assert [len(many.writes) for many in (first, second)] == [1, 1]
        one.settle(answered(["fine"]))
        other.fail(FaultError("g"))
        assert verdicts.told[1] == "fine"
        assert isinstance(verdicts.told[2], FaultError)

    with_queue(scene)


def test_a_group_that_is_not_admitted_or_not_stored_fails_as_a_whole() -> None:
    async def scene(queue: WriteQueue, engine: FakeEngine, ledger: LedgerContract) -> None:
        verdicts, error = Verdicts(), NotStoredError("away")
        queue.add(command(sequence=1), "", verdicts, 1)
        await asyncio.sleep(0)
        engine.admitted.pop()[1].fail(error)
        engine.error = error
        queue.add(command(sequence=2), "", verdicts, 2)
        queue.add(command(sequence=3), "", verdicts, 3)
        await asyncio.sleep(0)
        assert verdicts.told == {1: error, 2: error, 3: error}

    with_queue(scene)
