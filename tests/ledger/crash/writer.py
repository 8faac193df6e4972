"""Clients that never give up: a transaction is sent unchanged until it is answered, and each answer is kept.

One writer is one thread and one client id in one place, in one of three modes: sequences of its own, sequences and
keys, or keys alone. Writers with keys alone may share their client id with others.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    LedgerPlace,
    Operation,
    SetCondition,
    SetEntity,
)
from tests.harness.caller import Body, Line
from tests.ledger.crash.documents import path_of, to_base64, write_operation

SEQUENCES, BOTH, KEYS = "sequences", "both", "keys"
UNKNOWN = (500, 503, 504)
ENTITIES = 30
PAUSE_SECONDS = (0.0, 0.12)
RETRY_SECONDS = (0.03, 0.15)


class Heard(NamedTuple):
    """An answer with the one field of its head that counts."""

    status: int
    body: Body
    is_replay: bool


class LedgerLine(Line):
    """A line on which an unknown outcome is no answer."""

    def hear(self, method: str, path: str, body: Any = None) -> Heard:
        """The same request until an answer comes that stands."""
        while True:
            try:
                answer = self._request(method, path, body, {}).getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                self.lost += 1
                self.close()
            else:
                if answer.status not in (*UNKNOWN, 429):
                    is_replay = answer.headers.get("Idempotency-Replayed") == "true"
                    return Heard(answer.status, json.loads(content), is_replay)
            time.sleep(self._chance.uniform(*RETRY_SECONDS))


@dataclass(slots=True)
class Order:
    """One transaction that somebody wants, and what was said about it, in this client's order."""

    place: LedgerPlace
    client: str
    sequence: int | None
    key: bytes
    operations: tuple[Operation, ...]
    is_batch: bool = False
    answers: list[Heard] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For whoever reads of a fault."""
        return f"{path_of(self.place)} {self.client} {self.sequence} {self.key.hex()}"

    def request(self, operations: Sequence[Operation] = (), *, with_proof: bool = False) -> tuple[str, Body]:
        """Path and body; other operations if they are given."""
        written = [write_operation(operation) for operation in operations or self.operations]
        body: Body = {"clientId": self.client}
        body |= {} if self.sequence is None else {"sequence": str(self.sequence)}
        body |= {"idempotencyKey": to_base64(self.key)} if self.key else {}
        if not self.is_batch:
            proof = {"includeTxProof": True} if with_proof else {}
            return f"{path_of(self.place)}/writes", body | {"operations": written} | proof
        half = len(written) // 2
        groups = [{"operations": some} for some in (written[:half], written[half:]) if some]
        return f"{path_of(self.place)}/batches", body | {"operations": groups}


class Writer:
    """One thread; `orders` grows while it works."""

    is_brief = False
    """Whether some of its entities expire at once; the bodies of the blocks that remove them must be kept."""

    def __init__(self, place: LedgerPlace, client: str, mode: str, name: str, ports: Sequence[int], seed: int) -> None:
        self._place, self._client, self._mode, self._name = place, client, mode, name
        self._chance = random.Random(f"{seed} {name}")
        self._line = LedgerLine(ports, self._chance)
        self._side = LedgerLine(ports, self._chance)
        """For questions, which any node must be able to answer."""
        self._last = 0
        self.orders: list[Order] = []
        self.faults: list[str] = []
        self.refused = 0
        """Gaps, reused identities and failed conditions: each as it should be, or there is a fault."""

    @property
    def lost(self) -> int:
        """How many requests went without an answer."""
        return self._line.lost

    def work(self, stop: threading.Event) -> None:
        """Write until told to stop; sometimes repeat, reuse an identity, leave a gap, or ask for what cannot be."""
        while not stop.is_set():
            draw = self._chance.random()
            if draw < 0.08:
                self._fail_a_condition()
            self._commit(self._new())
            if draw > 0.8:
                self._commit(self._chance.choice(self.orders))
            elif draw > 0.73:
                self._reuse(self._chance.choice(self.orders))
            elif draw > 0.68:
                self._leave_a_gap()
            elif draw > 0.6:
                self._ask_for_state()
            stop.wait(self._chance.uniform(*PAUSE_SECONDS))
        self._line.close()

    def _key(self) -> bytes:
        return b"" if self._mode == SEQUENCES else self._chance.randbytes(16)

    def _sequence(self) -> int | None:
        return None if self._mode == KEYS else self._last + 1

    def _new(self) -> Order:
        chance, number = self._chance, len(self.orders)
        own = f"{self._name}-{number % ENTITIES}".encode()
        operations: list[Operation] = [SetEntity(own, f"{self._name} {number}".encode())]
        if chance.random() < 0.3:
            operations.append(SetEntity(f"shared-{chance.randrange(5)}".encode(), f"{self._name} {number}".encode()))
        if chance.random() < 0.2:
            operations.append(DeleteEntity(f"{self._name}-{chance.randrange(ENTITIES)}".encode()))
        if self._place.vault and chance.random() < 0.4:
            kind = chance.choice((CreateRelationship, DeleteRelationship))
            operations.append(kind(f"doc:{chance.randrange(9)}".encode(), b"reader", f"user:{self._name}".encode()))
        if self.is_brief and chance.random() < 0.3:
            operations.append(SetEntity(f"{self._name}-brief-{number % ENTITIES}".encode(), b"brief", expires_at=1))
        is_batch = chance.random() < 0.15
        order = Order(self._place, self._client, self._sequence(), self._key(), tuple(operations), is_batch)
        self.orders.append(order)
        return order

    def _commit(self, order: Order) -> None:
        path, body = order.request(with_proof=self._chance.random() < 0.1)
        heard = self._line.hear("POST", path, body)
        if heard.status != 200 or "success" not in heard.body:
            return self.faults.append(f"{order.name} was answered {heard.status} {heard.body}")
        order.answers.append(heard)
        self._last = max(self._last, int(heard.body["success"]["assignedSequence"]))
        return None

    def _reuse(self, order: Order) -> None:
        """Other operations under an identity that is taken."""
        if not order.answers:
            return
        first = order.answers[0].body["success"]
        path, body = order.request((SetEntity(b"reused", order.name.encode()),))
        error = self._refuse(409, "IDEMPOTENCY_KEY_REUSED", path, body)
        if error and error.get("committedTxId") != first["txId"]:
            self.faults.append(f"{order.name} is {first}, and was told as {error}")

    def _leave_a_gap(self) -> None:
        if self._mode == KEYS:
            return
        ahead = Order(self._place, self._client, self._last + 2, self._key(), (SetEntity(b"gap", b"never"),))
        error = self._refuse(409, "SEQUENCE_GAP", *ahead.request())
        if error and error.get("lastCommittedSequence") != str(self._last):
            self.faults.append(f"{ahead.name}: {self._last} are committed, and {error} was told")

    def _fail_a_condition(self) -> None:
        """It takes neither the sequence nor the key: the next transaction has the same number."""
        must = SetCondition(ConditionKind.MUST_EXIST)
        operations = (SetEntity(b"half", b"never"), SetEntity(b"never", b"never", condition=must))
        wrong = Order(self._place, self._client, self._sequence(), self._key(), operations)
        self._refuse(412, "KEY_NOT_FOUND", *wrong.request())

    def _refuse(self, status: int, code: str, path: str, body: Body) -> Body:
        heard = self._line.hear("POST", path, body)
        error: Body = heard.body.get("error", {})
        if (heard.status, error.get("code")) != (status, f"WRITE_ERROR_CODE_{code}"):
            self.faults.append(f"{path} {body} was answered {heard.status} {heard.body}, not {code}")
            return {}
        self.refused += 1
        return error

    def _ask_for_state(self) -> None:
        """Whoever was answered sees what was answered, whichever node is asked; alone, exactly that."""
        heard = self._side.hear("GET", f"{path_of(self._place)}/clients/{self._client}/state")
        self._side.close()
        last = int(heard.body.get("lastCommittedSequence", -1))
        if last < self._last or (last > self._last and self._mode != KEYS):
            self.faults.append(f"{self._client} has committed {self._last}, and {heard.body} was told")
