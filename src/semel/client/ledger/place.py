"""`client.ledger.place(org, vault)`: the calls of one organization or vault.

Promise: a write that was answered is committed once, in one block, however often it was retried. Without a sequence and
a key it gets a new key, which every attempt uses. With a trusted head everything that is read is verified: see
`place_reads`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from semel.client.errors import BadAnswerError, CallError, InvalidArgumentError, OutcomeUnknown
from semel.client.identity import LedgerWrite
from semel.client.json_answer import read
from semel.client.ledger import answers
from semel.client.ledger.bulk import BulkSender, BulkWrites
from semel.client.ledger.operations import (
    BulkTransaction,
    LedgerOperation,
    checked_sequence,
    key_text,
    operations_text,
    write_body,
)
from semel.client.ledger.place_reads import AsyncPlaceReads
from semel.client.ledger.trusted_head import TrustedHead
from semel.client.ledger.values import CommittedWrite, PlaceName
from semel.client.ledger.watch import BlockFollower, BlockNotices
from semel.client.ledger.write_call import WriteAnswer, WriteCall, fresh_key, write_request
from semel.client.proofs import verify_write
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.network import Network

if TYPE_CHECKING:
    from semel.client.ledger.writer import AsyncLedgerWriter, LedgerWriter


class AsyncPlace(AsyncPlaceReads):
    """One organization or vault, from asyncio code."""

    async def write(
        self,
        operations: Iterable[LedgerOperation],
        *,
        client: str,
        sequence: int | None = None,
        key: str | bytes | uuid.UUID | None = None,
        proof: bool = False,
    ) -> CommittedWrite:
        """Execute a transaction once: all operations, in order, or none.

        `client` names the writer, `sequence` is its own number for the transaction: 1, 2, 3, and so on in each place.
        `key` is 16 bytes or a UUID. `proof` asks for the proof, which is in `facts` then. Raises `WriteConditionError`
        if a condition fails, `SequenceGapError`, `KeyCollisionError` if the identity was used for other operations, and
        `FencedSequenceError`.
        """
        sequence, key = checked_sequence(sequence), key_text(key)
        if sequence is None and key is None:
            key = fresh_key()
        text = operations_text(operations)
        body = write_body(client, sequence, key, text, proof=proof or self._verifier is not None)
        identity = LedgerWrite(self.name.org, self.name.vault, client, sequence, key)
        answer = await self.write_call(body, identity).send()
        return await self.accepted(answer, write_body(client, None, None, text), identity)

    @property
    def network(self) -> Network:
        """The network of the calls."""
        return self._caller.transport.network

    @property
    def is_verifying(self) -> bool:
        """Whether answers are verified."""
        return self._verifier is not None

    def bulk_sender(self) -> BulkSender:
        """Sends requests of many transactions."""
        return BulkSender(self._caller, self.name, self.accepted)

    def write_call(self, body: bytes, identity: LedgerWrite) -> WriteCall:
        """A write of a body that was made before."""
        return WriteCall(self._caller, write_request(self.name, body), identity)

    async def accepted(self, answer: WriteAnswer, content: bytes, identity: LedgerWrite) -> CommittedWrite:
        """The transaction of an answer, verified if wanted; `content` is the body without sequence and key.

        Raises `OutcomeUnknown` if what the proof needs cannot be read: the server says that it is committed.
        """
        facts, is_replayed = answer
        found = read(lambda: answers.committed(facts, is_replayed=is_replayed, key=identity.key))
        if self._verifier is None:
            return found
        try:
            # An answer that names an earlier commit has no proof with it.
            proof = facts if found.note is None else await self.proof_of_transaction(found.tx_id)
            header = facts["success"].get("blockHeader") if found.note is None else proof.get("blockHeader")
            await self._verifier.proved(header, lambda trusted: verify_write(proof, content, trusted))
        except (CallError, BadAnswerError) as error:
            raise OutcomeUnknown(f"{error} The transaction is committed, but not verified.", identity) from error
        return found

    def write_many(self, transactions: Iterable[BulkTransaction]) -> BulkWrites:
        """Execute many transactions, in requests of many; the iterator has a result for each, in order.

        A result is a `CommittedWrite`, or the error of a transaction that was refused. If the retries end before all
        have a verdict, the others are `BusyError`, `NoAnswerError` (both: not executed) or `OutcomeUnknown`, and later
        ones are not sent. A request of which nothing can have been executed raises. After that, and after a cancelled
        call, the iterator sends the same request again. Nothing is sent before it is used.
        """
        return BulkWrites(self.bulk_sender(), self.name, transactions, proof=self.is_verifying)

    def watch(self, from_height: int = 1) -> BlockFollower:
        """Every block from a height on, once and in order, then new ones as they come; it does not end."""
        return BlockFollower(self._caller, self._chain, self._verifier, _started(from_height))

    def notices(self, from_height: int = 1) -> BlockNotices:
        """The announcement of every block from a height on, without transactions and unverified."""
        return BlockNotices(self._caller, self.name, _started(from_height))

    def writer(self, client: str, path: str | os.PathLike[str]) -> AsyncLedgerWriter:
        """A writer that keeps its transactions in a file until they are answered: see `semel.client.ledger.writer`."""
        from semel.client.ledger.writer import AsyncLedgerWriter  # noqa: PLC0415 - it needs sqlite3

        return AsyncLedgerWriter(self, client, path)


def _started(height: int) -> int:
    if height < 1:
        raise InvalidArgumentError("The first block has height 1.")
    return height


class Place(BlockingCalls[AsyncPlace]):
    """One organization or vault, from synchronous code."""

    @property
    def name(self) -> PlaceName:
        """The numbers of the organization and the vault."""
        return self._calls.name

    @property
    def head(self) -> TrustedHead | None:
        """The trusted head; None if answers are not verified."""
        return self._calls.head

    write = blocking(AsyncPlace.write)
    write_many = blocking_iterator(AsyncPlace.write_many)
    read = blocking(AsyncPlace.read)
    read_many = blocking(AsyncPlace.read_many)
    list_entities = blocking(AsyncPlace.list_entities)
    entities = blocking_iterator(AsyncPlace.entities)
    list_relationships = blocking(AsyncPlace.list_relationships)
    relationships = blocking_iterator(AsyncPlace.relationships)
    list_resources = blocking(AsyncPlace.list_resources)
    has_relationship = blocking(AsyncPlace.has_relationship)
    state = blocking(AsyncPlace.state)
    tip = blocking(AsyncPlace.tip)
    block = blocking(AsyncPlace.block)
    blocks = blocking_iterator(AsyncPlace.blocks)
    transaction = blocking(AsyncPlace.transaction)
    proof_of_key = blocking(AsyncPlace.proof_of_key)
    proof_of_relationship = blocking(AsyncPlace.proof_of_relationship)
    proof_of_transaction = blocking(AsyncPlace.proof_of_transaction)
    headers = blocking(AsyncPlace.headers)
    watch = blocking_iterator(AsyncPlace.watch)
    notices = blocking_iterator(AsyncPlace.notices)

    def writer(self, client: str, path: str | os.PathLike[str]) -> LedgerWriter:
        """A writer that keeps its transactions in a file until they are answered: see `semel.client.ledger.writer`."""
        from semel.client.ledger.writer import LedgerWriter  # noqa: PLC0415 - it needs sqlite3

        return LedgerWriter(self, client, path)
