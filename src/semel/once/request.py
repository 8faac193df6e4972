"""A request with a key, and the transactions of its handler that have joined it.

`once.transaction` without a key uses the key of the request. The request's receipt is marked before the transaction
begins, so that after a crash the retry runs the handler again, whatever `on_crash` says: its transaction replays if it
was committed, and runs if it was not.

A request is done when its transaction is over, and not when its handler has answered: a framework may commit after the
answer, and a handler may catch an error and roll back. So the answer waits, and the receipt of the block is read again,
in a transaction of its own on another connection.

| the blocks' receipts | their transactions | the request |
|---|---|---|
| all are there | over | done: the answer is stored, if it is one that is remembered |
| none is there | over | nothing happened: the answer is passed on, and the key is released |
| anything else, or they cannot be read | | a retry runs the handler; each block replays or runs |
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING

from semel.once.claims import Act, OnceClaim
from semel.once.errors import Fenced, InvalidKey, OnceError, SecondBlock
from semel.once.identity import OnceIdentity, text_of_id
from semel.once.table import DONE, PATIENCE_SECONDS, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.once.drivers.base import AsyncDriver, AsyncWitness, Driver, Witness
    from semel.once.stores import ReceiptStore

STEP = "\u203a"
"""Between the key of a request and the name of a step. No key of a request has it, because those are ASCII."""
MAX_STEP = 64


class JoinedBlock:
    """One block of a handler, in a transaction with the request's key."""

    def __init__(
        self, who: OnceIdentity, table: str, driver: Driver | AsyncDriver, witness: Witness | AsyncWitness
    ) -> None:
        self.who = who
        self.table = table
        self.witness = witness
        """Reads the receipt of this block on another connection."""
        self.place = table, witness.place
        """Where its receipt is. In another place the receipt of an earlier block would not be met."""
        self._driver = driver
        self.is_inside = True
        """Whether the `with` statement has not been left."""
        self.is_replay = False
        self.is_undone = False
        """Whether it raised, and left nothing. A replay has left what an earlier request did."""

    @property
    def is_open(self) -> bool:
        """Whether its transaction, or a later one on its connection, may be open."""
        return self._driver.is_open()

    def is_shown_by(self, rows: Sequence[Row], owner: str) -> bool:
        """Whether the receipt that was found says that this block was committed.

        A fresh block has written its own: another one, which a rollback brought back, is that of an expired key.
        """
        return any(state == DONE and (self.is_replay or wrote == owner) for _, state, _, _, wrote in rows)

    def has_connection_of(self, driver: Driver | AsyncDriver) -> bool:
        """Whether it is on the same connection."""
        return self._driver.target is driver.target


class Standing(Enum):
    """What the receipts of the blocks say of the request's effect."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"


class KeyedRequest:
    """A request that a middleware is handling."""

    def __init__(self, who: OnceIdentity, claim: OnceClaim, store: ReceiptStore) -> None:
        self.who = who
        self.claim = claim
        """The claim of this request, which the receipts of its blocks name as their owner."""
        self.store = store
        self.blocks: list[JoinedBlock] = []
        self.fault: OnceError | None = None
        """The refusal of a block: the key is that of another request, or is running."""
        self.is_answered = False
        self.did_nothing = False
        """Set by an application that knows that it did nothing."""

    def mark(self, patience: float = PATIENCE_SECONDS) -> None:
        """Store that the effect of this request is in a transaction with its key, before the transaction begins."""
        if not self.store.change(self.claim.to(Act.JOIN, patience=patience)):
            raise Fenced(self.who.key)

    async def mark_async(self, patience: float = PATIENCE_SECONDS) -> None:
        """`mark` in an event loop."""
        if not await self.store.change_async(self.claim.to(Act.JOIN, patience=patience)):
            raise Fenced(self.who.key)

    def step_identity(self, step: str | None) -> OnceIdentity:
        """The identity of a block; the first one needs no name."""
        if step is None:
            return self.who
        name = text_of_id("step", step)
        if len(name) > MAX_STEP or STEP in name:
            raise InvalidKey(f"The step must have 1 to {MAX_STEP} characters: {step!r}.")
        return self.who._replace(key=f"{self.who.key}{STEP}{name}")

    def join(self, block: JoinedBlock, driver: Driver | AsyncDriver) -> None:
        """Let a block take part. Raises `SecondBlock` if another one has its name: a key names one block."""
        if self.is_answered:
            raise InvalidKey("The request has been answered: pass a key to once.transaction.")
        for earlier in self.blocks:
            if earlier.who != block.who or earlier.is_undone:
                continue
            is_elsewhere = earlier.place != block.place or (not earlier.has_connection_of(driver) and earlier.is_open)
            if earlier.is_inside or earlier.is_replay or is_elsewhere:
                raise SecondBlock(self.who.key)
        self.blocks.append(block)

    def decide(self, block: JoinedBlock, *, is_replay: bool, owner: str | None) -> None:
        """Note how a block began. A receipt that this very request wrote is that of another block of its handler."""
        if is_replay and owner == self.claim.owner:
            self.blocks.remove(block)
            raise SecondBlock(self.who.key)
        block.is_replay = is_replay

    @property
    def has_joined(self) -> bool:
        """Whether a transaction of its handler decides about its effect."""
        return bool(self.blocks)

    @property
    def has_open_block(self) -> bool:
        """Whether a transaction that decides about its effect may be open."""
        return any(block.is_inside or block.is_open for block in self.blocks)

    def standing(self, is_found: list[bool | None]) -> Standing:
        """What the receipts of all blocks say together; None is one that could not be read."""
        if all(is_found):
            return Standing.COMMITTED
        if not any(one is not False for one in is_found) and not self.has_open_block:
            return Standing.ROLLED_BACK
        return Standing.UNKNOWN


current: ContextVar[KeyedRequest | None] = ContextVar("semel_once_request", default=None)


def current_request() -> KeyedRequest:
    """The request that is being handled. Raises `InvalidKey` if there is none."""
    found = current.get()
    if found is None:
        raise InvalidKey("once.transaction needs a key: pass one, or send the request with an Idempotency-Key.")
    return found
