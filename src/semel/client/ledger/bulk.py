"""Many transactions, in requests of many: each has its own identity, block and verdict.

A transaction without a verdict is sent again unchanged, and only it: the verdicts on the others stand, whatever is lost
later. At the end of the retries each one without a verdict has an error of its own, which says whether it may have been
executed. Transactions after it are not sent, because the order is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

from semel.client.errors import (
    CallError,
    FencedSequenceError,
    InvalidRequestError,
    NoAnswerError,
    OutcomeUnknown,
    RefusedError,
    SemelError,
    TooLargeError,
    refusal,
)
from semel.client.identity import LedgerWrite
from semel.client.json_answer import Facts, facts_of, read
from semel.client.ledger.chain import MOST_BYTES
from semel.client.ledger.operations import BulkTransaction, checked_sequence, key_text, operations_text, write_body
from semel.client.ledger.values import CommittedWrite, PlaceName
from semel.client.ledger.write_call import WriteAnswer, check_committed, fresh_key, is_verdict
from semel.client.retry import ClientCaller, json_request

MOST_TRANSACTIONS = 1_000
MOST_OPERATIONS = 10_000
MOST_REQUEST_BYTES = 4 * 1024 * 1024
"""A request has more only if its only transaction has."""

UNSENT = "This transaction was not sent, because an earlier one has no verdict: send it again."

BulkResult = CommittedWrite | CallError
"""What became of a transaction: committed; refused, so it has changed nothing; or without a verdict.

An error with `may_pass` is no verdict: `BusyError` and `NoAnswerError` say that the transaction was not executed, and
`OutcomeUnknown` that it may have been.
"""

Accept = Callable[[WriteAnswer, bytes, LedgerWrite], Awaitable[CommittedWrite]]
"""Makes the result of a successful answer, verified if wanted."""


class BulkItem(NamedTuple):
    """A transaction as it is sent."""

    identity: LedgerWrite
    body: bytes
    operations: bytes
    """A JSON array."""
    operation_count: int
    """The number of operations."""


class BulkWrites:
    """Iterator over the results of transactions, in their order."""

    def __init__(
        self, sender: BulkSender, place: PlaceName, transactions: Iterable[BulkTransaction], *, proof: bool
    ) -> None:
        self._sender = sender
        self._chunks = chunks(bulk_item(place, one, proof=proof) for one in transactions)
        self._chunk: list[BulkItem] | None = None
        """The transactions that are being sent. After a cancelled call they are sent again, unchanged."""
        self._results: deque[BulkResult] = deque()
        self._is_stuck = False
        """Whether a transaction has no verdict: later ones are not sent."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BulkResult:
        if not self._results:
            chunk = self._chunk = self._chunk or next(self._chunks, None)
            if chunk is None:
                raise StopAsyncIteration
            results = _unsent(chunk) if self._is_stuck else await self._sender.send(chunk)
            self._chunk = None
            self._is_stuck = self._is_stuck or any(map(is_undecided, results))
            self._results.extend(results)
        return self._results.popleft()

    async def aclose(self) -> None:
        """End it: later transactions are not sent."""
        self._chunks, self._chunk = iter(()), None
        self._results.clear()


def bulk_item(place: PlaceName, one: BulkTransaction, *, proof: bool) -> BulkItem:
    """A transaction with its identity. Raises InvalidArgumentError."""
    sequence, key = checked_sequence(one.sequence), key_text(one.key)
    if sequence is None and key is None:
        key = fresh_key()
    operations = operations_text(one.operations)
    identity = LedgerWrite(place.org, place.vault, one.client, sequence, key)
    body = write_body(one.client, sequence, key, operations, proof=proof)
    return BulkItem(identity, body, operations, len(one.operations))


def chunks(items: Iterable[BulkItem]) -> Iterator[list[BulkItem]]:
    """The transactions of each request, within the limits of the server."""
    chunk: list[BulkItem] = []
    operations = size = 0
    for item in items:
        is_full = len(chunk) == MOST_TRANSACTIONS or operations + item.operation_count > MOST_OPERATIONS
        if chunk and (is_full or size + len(item.body) > MOST_REQUEST_BYTES):
            yield chunk
            chunk, operations, size = [], 0, 0
        chunk.append(item)
        operations += item.operation_count
        size += len(item.body)
    if chunk:
        yield chunk


class BulkSender:
    """Sends requests of many transactions to one place."""

    def __init__(self, caller: ClientCaller, place: PlaceName, accept: Accept) -> None:
        self._caller = caller
        self._path = f"{place.path}/writes:bulk"
        self._accept = accept
        self.is_unsettled = False
        """Whether an attempt of the last request may still take effect."""

    async def send(self, chunk: list[BulkItem]) -> list[BulkResult]:
        """The result of each transaction, in order. Raises only if none of them was executed or may have been."""
        self.is_unsettled = False
        return await self._sent(chunk)

    async def _sent(self, chunk: list[BulkItem]) -> list[BulkResult]:
        attempts = _BulkAttempts(self._caller, self._path, chunk)
        error: SemelError | None = None
        try:
            await self._caller.insist(attempts.once, attempts.again, chunk[0].identity)
        except (TooLargeError, InvalidRequestError) as refused:
            # The request as a whole has too many bytes for this server: one that is refused alone has its own result.
            # Halves are safe after a lost answer, too: each transaction keeps its identity.
            if len(chunk) > 1 and not attempts.has_results:
                self.is_unsettled = self.is_unsettled or attempts.is_unsettled
                return await self._halves(chunk)
            error = refused
        except SemelError as failed:
            error = failed
        self.is_unsettled = self.is_unsettled or attempts.is_unsettled or _is_unsettled(error)
        if error is not None and not attempts.has_results and not _is_unknown(error, attempts.is_unsettled):
            raise error
        return [await self._result(attempts, place, error) for place in range(len(chunk))]

    async def _halves(self, chunk: list[BulkItem]) -> list[BulkResult]:
        half = len(chunk) // 2
        results = await self._sent(chunk[:half])
        if any(map(is_undecided, results)):
            return results + _unsent(chunk[half:])
        try:
            return results + await self._sent(chunk[half:])
        except SemelError as error:
            return results + [_rest(error, item) for item in chunk[half:]]

    async def _result(self, attempts: _BulkAttempts, place: int, error: SemelError | None) -> BulkResult:
        item, facts = attempts.items[place], attempts.decided.get(place)
        if facts is None:
            return attempts.undecided(place, error)
        refused = _refused(facts)
        if refused is not None:
            return refused
        told = _told(facts)
        content = write_body(item.identity.client, None, None, item.operations)
        try:
            return await self._accept(WriteAnswer(told, facts.get("replayed") is True), content, item.identity)
        except (FencedSequenceError, OutcomeUnknown) as other:
            return other


class _BulkAttempts:
    """The attempts of one request: what is decided, and what the next one sends."""

    def __init__(self, caller: ClientCaller, path: str, items: list[BulkItem]) -> None:
        self._caller = caller
        self._path = path
        self.items = items
        self.decided: dict[int, Facts] = {}
        """The verdicts, by the place of the transaction."""
        self._waiting: dict[int, RefusedError] = {}
        """The last answer to each transaction without a verdict; empty if the last attempt has no answer."""
        self.has_results = self.is_unsettled = False
        """Whether an answer had results; whether an attempt without an answer may have taken effect, or still may."""

    async def once(self, answer_seconds: float) -> None:
        """Send what has no verdict. Raises the first error that may pass."""
        left = [place for place in range(len(self.items)) if place not in self.decided]
        body = b'{"transactions":[%s]}' % b",".join(self.items[place].body for place in left)
        request = json_request("POST", self._path, body, most_bytes=MOST_BYTES)
        self._waiting = {}
        answer = self._caller.checked(await self._caller.transport.request(request, answer_seconds))
        results = read(lambda: [_judged(one) for one in _results(answer.body, len(left))])
        self.has_results = True
        passing: RefusedError | None = None
        for place, (error, facts) in zip(left, results, strict=True):
            # A refusal after a transaction without a verdict may be due to it, such as a gap in the sequences.
            if error is None or (passing is None and not error.may_pass):
                self.decided[place] = facts
                continue
            self._waiting[place] = error
            self.is_unsettled = self.is_unsettled or error.is_unsettled
            passing = passing or (error if error.may_pass else None)
        if passing is not None:
            raise passing

    def again(self, error: CallError) -> None:
        """Before a retry."""
        self.is_unsettled = self.is_unsettled or error.is_unsettled

    def undecided(self, place: int, error: SemelError | None) -> CallError:
        """The error of a transaction without a verdict, after the last attempt has raised `error`."""
        last = self._waiting.get(place, error)
        if isinstance(last, RefusedError) and is_verdict(last) and not last.may_pass:
            return last
        if isinstance(last, CallError) and not last.is_unsettled and not self.is_unsettled:
            return last
        return _unknown(last, self.items[place])


def is_undecided(result: BulkResult) -> bool:
    """Whether a result is no verdict."""
    return isinstance(result, CallError) and (result.may_pass or not isinstance(result, RefusedError))


def _unknown(error: SemelError | None, item: BulkItem) -> OutcomeUnknown:
    told = str(error) if isinstance(error, OutcomeUnknown) else f"{error} The transaction may have been executed."
    unknown = OutcomeUnknown(told, item.identity)
    unknown.__cause__ = error
    return unknown


def _rest(error: SemelError, item: BulkItem) -> CallError:
    """The error of a transaction whose request has raised."""
    return error if isinstance(error, CallError) and not error.is_unsettled else _unknown(error, item)


def _unsent(chunk: list[BulkItem]) -> list[BulkResult]:
    return [NoAnswerError(UNSENT, is_unsettled=False) for _ in chunk]


def _is_unsettled(error: SemelError | None) -> bool:
    return isinstance(error, CallError) and error.is_unsettled


def _is_unknown(error: SemelError, was_unsettled: bool) -> bool:
    """Whether a failure of the whole request leaves its outcome open; `was_unsettled` if an earlier attempt did."""
    if isinstance(error, RefusedError) and is_verdict(error):
        return False
    return was_unsettled or _is_unsettled(error)


def _results(body: bytes, count: int) -> list[Facts]:
    results: Any = facts_of(body)["results"]
    if not isinstance(results, list) or len(results) != count:
        raise ValueError("it does not have one result for each transaction")
    return results


def _judged(facts: Facts) -> tuple[RefusedError | None, Facts]:
    """A result, and its error if it is refused."""
    refused = _refused(facts)
    if refused is None:
        check_committed(_told(facts))
    return refused, facts


def _told(facts: Facts) -> Facts:
    """What a result tells of a committed transaction."""
    return {name: value for name, value in facts.items() if name in ("success", "error")}


def _refused(facts: Facts) -> RefusedError | None:
    """The error of a result; None if the transaction is committed."""
    status = int(facts["status"])
    if status == 200:
        return None
    problem = facts.get("problem")
    return refusal(status, problem if isinstance(problem, dict) else facts)
