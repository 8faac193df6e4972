"""Writers that use the Python client instead of the wire: its calls, its proofs and its durable writer.

What they were told is kept as the answers of the wire are, and is judged by the same rules. Repetitions, reused
identities, gaps and questions go over the wire: the client alone could hide a fault that it shares with the server.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from semel.client import Client, CommittedWrite, SemelError, WriteConditionError
from semel.client.ledger.operations import DeleteKey, IfExists, LedgerOperation, Relate, SetKey, Unrelate
from semel.client.retry import ENDLESS
from semel.surfaces.ledger.model import (
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    LedgerPlace,
    Operation,
    SetEntity,
)
from tests.harness.caller import HOST
from tests.harness.moving_network import MovingNetwork
from tests.ledger.crash.writer import BOTH, Heard, Order, Writer

CALLS, DURABLE = "calls", "durable"


class ClientWriter(Writer):
    """One thread with one client; the mode is `CALLS` or `DURABLE`."""

    def __init__(
        self, place: LedgerPlace, client: str, mode: str, name: str, ports: Sequence[int], seed: int, folder: Path
    ) -> None:
        super().__init__(place, client, BOTH, name, ports, seed)
        self._retries = 0
        port = self._chance.choice(ports)
        network = MovingNetwork([port], self._chance)
        self._sdk = Client(f"http://{HOST}:{port}", patience=ENDLESS, on_retry=self._count, network=network)
        # Vaults are verified, too; the place of an organization is not.
        self._handle = self._sdk.ledger.place(place.org, place.vault or None, verify=bool(place.vault))
        self._writer = self._handle.writer(client, folder / f"{name}.db") if mode == DURABLE else None

    @property
    def lost(self) -> int:
        """How many requests went without an answer."""
        return super().lost + self._retries

    def work(self, stop: threading.Event) -> None:
        """Write until told to stop, and close the client."""
        try:
            super().work(stop)
        finally:
            if self._writer is not None:
                self._writer.close()
            self._sdk.close()

    def _count(self, error: Exception) -> None:
        self._retries += 1

    def _commit(self, order: Order) -> None:
        if order.answers or order.is_batch:
            super()._commit(order)
            return
        try:
            found = self._written(order, [said(one) for one in order.operations])
        except SemelError as error:
            self.faults.append(f"{order.name} ended with {type(error).__name__}: {error}")
            self.orders.remove(order)
            return
        if found.note is not None:
            self.faults.append(f"{order.name} was answered {found.note}")
        order.answers.append(Heard(200, dict(found.facts), found.replayed))
        self._last = max(self._last, found.sequence)

    def _written(self, order: Order, operations: list[LedgerOperation]) -> CommittedWrite:
        if self._writer is None:
            with_proof = self._chance.random() < 0.1
            key = order.key
            return self._handle.write(
                operations, client=order.client, sequence=order.sequence, key=key, proof=with_proof
            )
        found = self._writer.write(operations, note=order.name)
        order.key = UUID(found.key).bytes
        if self._writer.recovered:
            self.faults.append(f"{order.name}: {self._writer.recovered} was recovered, and nothing was open")
        return found

    def _new(self) -> Order:
        order = super()._new()
        if self._writer is not None:
            order.is_batch, order.key = False, b""
        return order

    def _fail_a_condition(self) -> None:
        if self._writer is None:
            super()._fail_a_condition()
            return
        try:
            self._writer.write([SetKey("half", "never"), SetKey("never", "never", IfExists())])
        except WriteConditionError as failed:
            self.refused += failed.entity_key == "never"
        else:
            self.faults.append(f"{self._name}: a condition that fails did not")


def said(operation: Operation) -> LedgerOperation:
    """An operation of the harness in the words of the client."""
    match operation:
        case SetEntity(key, value, expires_at):
            return SetKey(key.decode(), value, expires_at=expires_at)
        case DeleteEntity(key):
            return DeleteKey(key.decode())
        case CreateRelationship(resource, relation, subject):
            return Relate(resource.decode(), relation.decode(), subject.decode())
        case DeleteRelationship(resource, relation, subject):
            return Unrelate(resource.decode(), relation.decode(), subject.decode())
    raise ValueError(f"the client does not send {operation}")
