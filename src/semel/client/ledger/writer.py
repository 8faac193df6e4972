"""A durable writer: every transaction is in a file before it is sent, and stays there until its outcome is told.

    with client.ledger.place(7001, 9001).writer("till-3", "till-3.db") as writer:
        for one in writer.recovered:   # what an earlier process could not finish, or could not tell
            ...
        writer.forget_recovered()
        writer.write([SetKey("ada", "80")], note="order 4711")

Promise: a transaction is committed at most once, whatever crashes and how often, and its outcome is returned by its
call or listed in `recovered`. The sequences of the client have no hole. Before anything new is sent, everything without
an answer is sent again, unchanged. One process at a time uses a client id in a place.

Each transaction has a sequence and a key. The sequence orders it and keeps its place even after the server has
forgotten the key; the key names it under whatever sequence. A refused transaction uses no sequence: the next one gets
it. A crash at any point leaves the file as it was before or after the step; the next process continues from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from semel.client.errors import (
    CallError,
    FencedSequenceError,
    InvalidArgumentError,
    OutcomeUnknown,
    RefusedError,
    SemelError,
    SequenceGapError,
)
from semel.client.ledger.bulk import BulkResult, is_undecided
from semel.client.ledger.intent_file import NOT_TOLD, RETURNED, IntentFile, NewIntent, WriteIntent, WriteOutcome
from semel.client.ledger.intent_sender import IntentSender, is_taken, taken
from semel.client.ledger.operations import LedgerOperation, operations_text
from semel.client.ledger.place import AsyncPlace, Place
from semel.client.ledger.values import CommittedWrite
from semel.client.ledger.write_call import fresh_key
from semel.client.sync_calls import BlockingCalls, blocking
from semel.client.transport.network import finished

MOST_INTENTS = 10_000
"""Intents of one call, and outcomes that the application has not taken from `recovered`."""
POINTS = ("recovering", "noted", "answered", "recorded", "renumbered")
"""Named steps, at which tests kill the process."""


def nowhere(point: str) -> None:
    """Do nothing at a named step."""


class UnsettledWriteError(SemelError):
    """An earlier transaction has no answer, or its outcome was not taken: nothing new was stored or sent."""


@dataclass(frozen=True, slots=True)
class RecoveredWrite:
    """The outcome of a transaction that no call has returned, or that one returned just before the end of a process."""

    note: str | None
    """As given to `write`."""
    key: str
    sequence: int
    outcome: WriteOutcome
    operations: bytes
    """The operations in the server's JSON."""

    @property
    def is_committed(self) -> bool:
        """Whether it is in the chain."""
        return isinstance(self.outcome, CommittedWrite)


class AsyncLedgerWriter:
    """The numbered transactions of one client in one place, from asyncio code; one call at a time is sent.

    The event loop waits while the file is synced, twice for each call.
    """

    def __init__(
        self,
        place: AsyncPlace,
        client: str,
        path: str | os.PathLike[str],
        *,
        reach: Callable[[str], None] = nowhere,
    ) -> None:
        """Open or create the file. Raises `FileInUseError` if another process has it open. `reach` is for tests."""
        self._place = place
        self._client = client
        self._reach = reach
        self._turn = place.network.limit(1)
        self._sender = IntentSender(place, client)
        self._file = IntentFile(path, f"{client} in {place.name}")
        self._last = self._file.last

    @property
    def recovered(self) -> list[RecoveredWrite]:
        """Outcomes that the application may not know, in order; they stay until `forget_recovered`.

        After a crash the last outcome that a call returned may be among them: compare the note or the sequence.
        """
        return [
            RecoveredWrite(one.note, one.key, one.sequence, one.outcome, one.operations)
            for one in self._file.recovered()
            if one.outcome is not None
        ]

    @property
    def pending(self) -> int:
        """The number of transactions without an answer."""
        return len(self._file.pending())

    @property
    def last_sequence(self) -> int | None:
        """The last committed sequence; None before the first answer."""
        return self._last

    async def forget_recovered(self) -> None:
        """Drop the outcomes of `recovered`: the application has stored what it needs of them."""
        self._file.forget_recovered()

    async def write(self, operations: Iterable[LedgerOperation], *, note: str | None = None) -> CommittedWrite:
        """Execute a transaction once, under the next sequence; `note` is stored with it, for `recovered`.

        A refusal raises its error; the transaction is dropped and no sequence is used. `OutcomeUnknown`: it stays in
        the file, is sent again before anything else, and its outcome is in `recovered` then. `UnsettledWriteError`: an
        earlier one has no answer yet, and this one was not taken.
        """
        [outcome] = await self._written([NewIntent(fresh_key(), operations_text(operations), note)])
        if isinstance(outcome, CallError):
            raise outcome
        return outcome

    async def write_all(
        self, transactions: Iterable[Iterable[LedgerOperation]], *, note: str | None = None
    ) -> list[BulkResult]:
        """Execute up to 10,000 transactions, in requests of many; a result for each: committed, or its refusal.

        One that is refused changes nothing for the others. If the server stops answering after some have a result, the
        results of the others are its error: they were dropped, and were not executed. `OutcomeUnknown` is raised as in
        `write`: all that have no result stay in the file, and the results of the others are in `recovered`.
        """
        return await self._written([NewIntent(fresh_key(), operations_text(one), note) for one in transactions])

    async def settle(self) -> list[RecoveredWrite]:
        """Send what has no answer, and return `recovered`. Raises `UnsettledWriteError` if there is none now either."""
        await self._turn.acquire()
        try:
            await self._recover()
        finally:
            self._turn.release()
        return self.recovered

    async def adopt_server_sequence(self) -> int:
        """Continue behind the server's last sequence of this client, and return it.

        For `SequenceGapError` after a restored backup or after the server has forgotten this client, and for a client
        id that another writer has used. What the server has lost is not sent again.
        """
        await self._turn.acquire()
        try:
            self._last = (await self._place.state(self._client)).last_sequence
            self._file.begin(self._last)
            self._file.renumber(self._file.pending(), self._last + 1)
        finally:
            self._turn.release()
        return self._last

    async def close(self) -> None:
        """Close the file. What has no answer stays in it."""
        self._file.close(is_told=True)

    async def __aenter__(self) -> Self:
        """Send what has no answer; if the server does not answer now, the first write tries again."""
        try:
            await self.settle()
        except UnsettledWriteError:
            pass
        except BaseException:
            self._file.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An exception may have come between the outcome of a call and its arrival: then it is told again.
        self._file.close(is_told=kind is None)

    async def _written(self, drafts: list[NewIntent]) -> list[BulkResult]:
        if not 1 <= len(drafts) <= MOST_INTENTS:
            raise InvalidArgumentError(f"One call takes 1 to {MOST_INTENTS} transactions.")
        await self._turn.acquire()
        try:
            await self._recover()
            if len(self._file.recovered()) >= MOST_INTENTS:
                raise UnsettledWriteError("Too many outcomes were not taken: read `recovered` and forget them.")
            intents = self._file.note(drafts, await self._next())
            self._reach("noted")
            results: dict[int, BulkResult] = {}
            try:
                while left := self._file.pending():
                    results |= await self._settled(left, RETURNED)
            except BaseException as error:
                left = self._file.pending()
                if not isinstance(error, CallError) or error.is_unsettled or any(one.is_unsettled for one in left):
                    self._file.doubt(left)
                    self._file.keep_outcomes()
                    if isinstance(error, CallError) and not error.is_unsettled:
                        told = f"{error} An earlier attempt may have taken effect."
                        raise OutcomeUnknown(told, self._sender.identity(left[0])) from error
                    raise
                # None of them was executed or will be.
                self._file.withdraw(left)
                if not results:
                    raise
                results |= dict.fromkeys([one.number for one in left], error)
            return [results[one.number] for one in intents]
        finally:
            self._turn.release()

    async def _recover(self) -> None:
        try:
            while left := self._file.pending():
                self._reach("recovering")
                await self._settled(left, NOT_TOLD)
        except CallError as error:
            waiting = self._file.pending()[0].sequence
            raise UnsettledWriteError(f"Transaction {waiting} of {self._client} has no answer yet: {error}") from error

    async def _next(self) -> int:
        if self._last is None:
            self._last = (await self._place.state(self._client)).last_sequence
            self._file.begin(self._last)
        return self._last + 1

    async def _settled(self, left: list[WriteIntent], told: int) -> dict[int, BulkResult]:
        """Send intents and record their outcomes, which are returned. Others are left, perhaps under new sequences.

        Raises the error of the first one if it has no outcome.
        """
        last = await self._next() - 1
        try:
            sent = await self._sender.send(left)
        except CallError:
            raise  # it tells whether they may have been executed
        except BaseException:
            self._file.doubt(left)
            raise
        self._reach("answered")
        outcomes: list[tuple[WriteIntent, WriteOutcome]] = []
        try:
            for intent, result in sent:
                last, verdict = await self._verdict(intent, result, last)
                if verdict is None:
                    break
                outcomes.append((intent, verdict))
        except BaseException:
            self._file.doubt([intent for intent, _ in sent])  # the server has processed them
            raise
        self._file.record(outcomes, last, told)
        self._last = last
        self._reach("recorded")
        if len(outcomes) < len(sent):
            rest = sent[len(outcomes) :]
            self._file.doubt([one for one, result in rest if one.is_unsettled or isinstance(result, CommittedWrite)])
            first = rest[0][1]
            if not outcomes and isinstance(first, CallError) and is_undecided(first):
                raise first
            self._file.renumber(self._file.pending(), last + 1)
            self._reach("renumbered")
        self._sender.adapt(len(outcomes), len(sent))
        return {intent.number: outcome for intent, outcome in outcomes}

    async def _verdict(self, intent: WriteIntent, outcome: BulkResult, last: int) -> tuple[int, WriteOutcome | None]:
        """The last committed sequence after an answer, and the outcome; None if there is none yet, or if the intent
        needs another sequence.

        Its sequence is too high if one before it was refused. It is taken if a copy of a refused intent has arrived
        late and was committed: then that one is told as `recovered`.
        """
        if isinstance(outcome, CallError) and (is_undecided(outcome) or not isinstance(outcome, RefusedError)):
            return last, None
        if isinstance(outcome, SequenceGapError) and intent.sequence > last + 1:
            return last, None
        if is_taken(intent, outcome):
            if intent.sequence <= last:
                return last, None
            if await self._have_arrived_late(intent.sequence, intent.sequence):
                return intent.sequence, None
            return last, taken(outcome)
        if isinstance(outcome, FencedSequenceError):
            return max(last, intent.sequence), outcome
        if isinstance(outcome, RefusedError):
            return last, outcome
        await self._have_arrived_late(last + 1, outcome.sequence - 1)
        return max(last, outcome.sequence), outcome

    async def _have_arrived_late(self, first: int, last: int) -> bool:
        """Whether refused intents of these sequences were committed after all; each is repeated unchanged to find out.

        Another transaction has its sequence by now, so the repetition itself cannot be executed.
        """
        has_arrived = False
        for intent in self._file.doubtful(first, last):
            [(_, outcome)] = await self._sender.send([intent])
            if isinstance(outcome, CallError) and is_undecided(outcome):
                raise outcome
            if isinstance(outcome, CommittedWrite) and not is_taken(intent, outcome):
                self._file.record([(intent, outcome)], intent.sequence, NOT_TOLD)
                has_arrived = True
        return has_arrived


class LedgerWriter(BlockingCalls[AsyncLedgerWriter]):
    """The numbered transactions of one client in one place, from synchronous code. Several threads may use it."""

    def __init__(
        self, place: Place, client: str, path: str | os.PathLike[str], *, reach: Callable[[str], None] = nowhere
    ) -> None:
        """Open or create the file. Raises `FileInUseError` if another process has it open. `reach` is for tests."""
        super().__init__(AsyncLedgerWriter(place.calls, client, path, reach=reach))

    write = blocking(AsyncLedgerWriter.write)
    write_all = blocking(AsyncLedgerWriter.write_all)
    settle = blocking(AsyncLedgerWriter.settle)
    forget_recovered = blocking(AsyncLedgerWriter.forget_recovered)
    adopt_server_sequence = blocking(AsyncLedgerWriter.adopt_server_sequence)
    close = blocking(AsyncLedgerWriter.close)

    @property
    def recovered(self) -> list[RecoveredWrite]:
        """Outcomes that the application may not know, in order; they stay until `forget_recovered`.

        After a crash the last outcome that a call returned may be among them: compare the note or the sequence.
        """
        return self._calls.recovered

    @property
    def pending(self) -> int:
        """The number of transactions without an answer."""
        return self._calls.pending

    @property
    def last_sequence(self) -> int | None:
        """The last committed sequence; None before the first answer."""
        return self._calls.last_sequence

    def __enter__(self) -> Self:
        """Send what has no answer; if the server does not answer now, the first write tries again."""
        finished(self._calls.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finished(self._calls.__aexit__(kind, error, trace))
