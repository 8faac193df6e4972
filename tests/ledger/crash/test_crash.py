"""`kill -9` of servers under a load of transactions: nothing acknowledged is lost, doubled or answered otherwise.

A short run in every test run; `make crash SURFACE=ledger` kills as often as you like. The last tests show that the
verdict finds what it is there to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semel.surfaces.ledger.model import (
    BlockHeader,
    Entity,
    ExpireEntity,
    LedgerPlace,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetEntity,
)
from tests.harness.crash.run import CrashPlan, check_lives
from tests.harness.crash.verdict import Verdict
from tests.ledger.crash.documents import to_base64
from tests.ledger.crash.run import LedgerUnderKills
from tests.ledger.crash.verdict import ACTOR, GC, Chain, judge_ledger
from tests.ledger.crash.writer import Heard, Order
from tests.ledger.model.hashing import ZERO, block_hash, state_root, transaction_hash


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_acknowledged_transaction_is_one_block(tmp_path: Path, store: str) -> None:
    check_lives(LedgerUnderKills, CrashPlan(tmp_path, 2, store, seed=6))


# -- The verdict itself ------------------------------------------------------------------------------------------------

PLACE = LedgerPlace(7, 0)
AT = LedgerTime(1_760_000_000)


class Scene:
    """A run of three transactions that went well: two by sequence, the second of them told twice, and one by key."""

    def __init__(self) -> None:
        self.orders = [self.order("a", 1), self.order("a", 2), self.order("b", None, b"k" * 16)]
        self.headers: list[BlockHeader] = []
        self.bodies: dict[int, LedgerTransaction] = {}
        self.entities: dict[bytes, Entity] = {}
        for order, sequence in zip(self.orders, (1, 2, 1), strict=True):
            self.commit(order, sequence)
        self.orders[1].answers.append(self.told(self.orders[1])._replace(is_replay=True))
        self.clients: dict[str, Any] = {"a": {"lastCommittedSequence": "2"}, "b": {"lastCommittedSequence": "1"}}
        self.again = [self.told(order)._replace(is_replay=True) for order in self.orders]
        self.retain = 0

    @staticmethod
    def order(client: str, sequence: int | None, key: bytes = b"") -> Order:
        operation: Operation = SetEntity(b"e", f"{client} {sequence}".encode())
        return Order(PLACE, client, sequence, key, (operation,))

    @staticmethod
    def told(order: Order) -> Heard:
        return order.answers[0]

    def commit(self, order: Order, sequence: int) -> None:
        """One more block."""
        height = len(self.headers) + 1
        tx_id = height.to_bytes(16, "big")
        body = LedgerTransaction(tx_id, order.client.encode(), sequence, order.operations, AT, ACTOR)
        operation = order.operations[0]
        assert isinstance(operation, SetEntity)
        self.entities[b"e"] = Entity(b"e", operation.value, 0, height)
        previous = block_hash(self.headers[-1]) if self.headers else ZERO
        root = state_root(self.entities.values())
        header = BlockHeader(height, PLACE, previous, transaction_hash(body), root, AT, 1, height + 2, b"node")
        self.headers.append(header)
        self.bodies[height] = body
        facts = {"txId": {"id": to_base64(tx_id)}, "blockHeight": str(height), "assignedSequence": str(sequence)}
        order.answers.append(Heard(200, {"success": facts}, False))

    def change_answer(self, number: int, **facts: Any) -> None:
        """Another answer to an order, besides the first."""
        first = self.told(self.orders[number])
        other = {"success": first.body["success"] | facts}
        self.orders[number].answers.append(Heard(200, other, True))

    def change_header(self, number: int, **facts: Any) -> None:
        """Another header in the place of one."""
        self.headers[number] = self.headers[number]._replace(**facts)

    def faults(self) -> str:
        """What the verdict finds."""
        height = len(self.headers)
        tip = {"height": str(height), "blockHash": {"value": to_base64(block_hash(self.headers[-1]))}}
        entities = list(self.entities.values())
        chain = Chain(PLACE, self.retain, self.headers, self.bodies, tip, entities, self.clients)
        verdict = Verdict()
        judge_ledger(verdict, [chain], self.orders, self.again, others=2)
        return "\n".join(verdict.faults)


def test_a_run_that_went_well_has_no_fault() -> None:
    assert not Scene().faults()


def test_a_compacted_body_is_no_fault_and_the_orders_tell_what_it_held() -> None:
    scene = Scene()
    del scene.bodies[1]
    assert "block 1 has no body" in scene.faults()
    scene.retain = 2
    assert not scene.faults()
    scene.orders[0] = replace(scene.orders[0], operations=(SetEntity(b"e", b"other"),))
    assert "block 1 has another state" in scene.faults()


def _forget_the_last(scene: Scene) -> None:
    scene.headers.pop()
    scene.bodies.pop(3)


def _repeat_the_first(scene: Scene) -> None:
    scene.commit(scene.orders[0], 3)
    scene.orders[0].answers.pop()


def _expire(scene: Scene, **facts: Any) -> None:
    """One more block, by the server."""
    order = Order(PLACE, "system:gc", 1, b"", (ExpireEntity(b"e", 0),))
    scene.commit(replace(order, operations=(SetEntity(b"e", b"x"),)), 1)
    scene.bodies[4] = scene.bodies[4]._replace(**{"actor": GC, "operations": order.operations} | facts)


def _leave_a_hole(scene: Scene) -> None:
    for number in (1, 2):
        scene.change_header(number, committed_index=number + 4)


WRONG: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "an acknowledged one is missing": (_forget_the_last, "acknowledged, and not there: [3]"),
    "one is there twice": (_repeat_the_first, "nobody has ordered [4]"),
    "two heights were told": (lambda scene: scene.change_answer(0, blockHeight="2"), "was told"),
    "two ids were told": (lambda scene: scene.change_answer(0, txId={"id": "AAAA"}), "was told"),
    "two sequences were told": (lambda scene: scene.change_answer(2, assignedSequence="2"), "was told"),
    "it was committed twice": (
        lambda scene: scene.orders[0].answers.append(scene.told(scene.orders[0])),
        "was committed 2 times",
    ),
    "the last retry is no replay": (
        lambda scene: scene.again.__setitem__(0, scene.again[0]._replace(is_replay=False)),
        "at last",
    ),
    "a sequence is left out": (
        lambda scene: scene.bodies.update({2: scene.bodies[2]._replace(sequence=3)}),
        "has 3 where 2 is due",
    ),
    "a state tells another last": (lambda scene: scene.clients["a"].update(lastCommittedSequence="3"), "states"),
    "a link is broken": (lambda scene: scene.change_header(1, previous_hash=ZERO), "does not follow"),
    "a term falls": (lambda scene: scene.change_header(2, term=0), "term, time or index falls"),
    "the log has a hole": (_leave_a_hole, "has a hole or a repeat at [5]"),
    "another transaction than was ordered": (
        lambda scene: scene.bodies.update({1: scene.bodies[1]._replace(operations=())}),
        "and there is",
    ),
    "an actor of one's own": (
        lambda scene: scene.bodies.update({1: scene.bodies[1]._replace(actor=b"me")}),
        "is by b'me'",
    ),
    "what has not expired is removed": (_expire, "removes what has not expired"),
    "an actor of the server's is not its client's": (lambda scene: _expire(scene, actor=ACTOR), "is by b'client:"),
    "a root that is no root": (lambda scene: scene.change_header(2, state_root=ZERO), "block 3 has another state"),
    "an entity is listed otherwise": (
        lambda scene: scene.entities.update({b"e": Entity(b"e", b"?", 0, 3)}),
        "entities are listed",
    ),
    "another header was given": (
        lambda scene: scene.change_answer(0, blockHeader=_written(scene.headers[1])),
        "was given another header",
    ),
}


def _written(header: BlockHeader) -> Any:
    hashes = {"previousHash": header.previous_hash, "txMerkleRoot": header.tx_root, "stateRoot": header.state_root}
    return {name: {"value": to_base64(value)} for name, value in hashes.items()} | {
        "height": str(header.height),
        "organization": {"slug": str(header.place.org)},
        "timestamp": "2025-10-09T08:53:20Z",
        "leaderId": {"id": "node"},
        "term": str(header.term),
        "committedIndex": str(header.committed_index),
    }


@pytest.mark.parametrize(("change", "fault"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found_out(change: Callable[[Scene], Any], fault: str) -> None:
    scene = Scene()
    change(scene)
    assert fault in scene.faults()
