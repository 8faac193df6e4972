"""Sends intents of a durable writer and says which outcomes are definite.

An intent that was sent before, by this process or by one that crashed, may have been executed: only a verdict of the
server on its identity is its outcome, not the refusal of a credential or of the place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from semel.client.errors import FencedSequenceError, KeyCollisionError, OutcomeUnknown, RefusedError, refusal
from semel.client.identity import LedgerWrite
from semel.client.ledger.bulk import MOST_TRANSACTIONS, BulkItem, BulkResult, chunks
from semel.client.ledger.intent_file import WriteIntent, WriteOutcome
from semel.client.ledger.operations import write_body
from semel.client.ledger.place import AsyncPlace
from semel.client.ledger.values import CommittedWrite
from semel.client.ledger.write_call import is_verdict


class IntentSender:
    """Sends the first of some intents: one in a request of its own, several in a request of many."""

    def __init__(self, place: AsyncPlace, client: str) -> None:
        self._place = place
        self._client = client
        self._most = MOST_TRANSACTIONS
        """Intents of a request. It falls after refusals, because those behind a refused one are sent again."""

    def adapt(self, settled: int, sent: int) -> None:
        """Send more at once if all were settled, and fewer if not."""
        self._most = min(MOST_TRANSACTIONS, 2 * max(1, settled)) if settled < sent else MOST_TRANSACTIONS

    async def send(self, intents: Sequence[WriteIntent]) -> list[tuple[WriteIntent, BulkResult]]:
        """The results of the first intents; `is_undecided` tells those that are no outcome.

        Raises if none of them was executed or may have been. An intent is returned with `is_unsettled` set if it may be
        committed although this is not its outcome, or if a copy of it may still be on its way.
        """
        chunk = list(intents[: self._most])
        if len(chunk) > 1:
            items = next(chunks(map(self._item, chunk)))
            chunk = chunk[: len(items)]
        try:
            results, is_unsettled = await (self._one(chunk[0]) if len(chunk) == 1 else self._many(chunk))
        except RefusedError as error:
            if error.may_pass:
                raise
            results, is_unsettled = [error] * len(chunk), False
        return [
            self._told(one._replace(is_unsettled=one.is_unsettled or is_unsettled), result)
            for one, result in zip(chunk, results, strict=True)
        ]

    def _told(self, intent: WriteIntent, result: BulkResult) -> tuple[WriteIntent, BulkResult]:
        if isinstance(result, CommittedWrite):
            return intent, result
        is_final = isinstance(result, RefusedError) and is_verdict(result) and not result.may_pass
        if intent.is_unsettled and isinstance(result, RefusedError) and not is_final:
            unknown = OutcomeUnknown(f"{result} An earlier attempt may have taken effect.", self.identity(intent))
            unknown.__cause__ = result
            return intent, unknown
        return intent._replace(is_unsettled=intent.is_unsettled or result.is_unsettled), result

    async def _one(self, intent: WriteIntent) -> tuple[list[BulkResult], bool]:
        call = self._place.write_call(self._body(intent), self.identity(intent))
        try:
            answer = await call.send()
            content = write_body(self._client, None, None, intent.operations)
            return [await self._place.accepted(answer, content, self.identity(intent))], call.is_unsettled
        except FencedSequenceError as fenced:
            return [fenced], call.is_unsettled
        except OutcomeUnknown as unknown:
            return [unknown], True
        except RefusedError as error:
            if error.may_pass or not is_verdict(error):
                raise
            return [error], call.is_unsettled

    async def _many(self, intents: Sequence[WriteIntent]) -> tuple[list[BulkResult], bool]:
        sender = self._place.bulk_sender()
        return await sender.send([self._item(one) for one in intents]), sender.is_unsettled

    def _item(self, intent: WriteIntent) -> BulkItem:
        return BulkItem(
            self.identity(intent), self._body(intent), intent.operations, len(json.loads(intent.operations))
        )

    def _body(self, intent: WriteIntent) -> bytes:
        return write_body(self._client, intent.sequence, intent.key, intent.operations, proof=self._place.is_verifying)

    def identity(self, intent: WriteIntent) -> LedgerWrite:
        """What names an intent at the server."""
        place = self._place.name
        return LedgerWrite(place.org, place.vault, self._client, intent.sequence, intent.key)


def is_taken(intent: WriteIntent, outcome: BulkResult) -> bool:
    """Whether another transaction has the sequence of the intent."""
    if isinstance(outcome, CommittedWrite):
        return outcome.note is not None and outcome.sequence == intent.sequence
    if not isinstance(outcome, KeyCollisionError):
        return False
    error = outcome.facts.get("error")
    details = error.get("details") if isinstance(error, dict) else None
    return isinstance(details, dict) and details.get("conflict") == "sequence"


def taken(outcome: WriteOutcome) -> RefusedError:
    """The error of a sequence that another writer has used."""
    if isinstance(outcome, RefusedError):
        return outcome
    return refusal(409, {"code": "SEQUENCE_TAKEN", "detail": str(outcome.note)})
