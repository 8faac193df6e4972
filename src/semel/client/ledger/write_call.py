"""One write to the server, with retries: what its answer, or the lack of one, says about the transaction."""

from __future__ import annotations

import time
from contextlib import suppress
from secrets import token_bytes
from typing import NamedTuple

from semel.client.errors import CallError, FencedSequenceError, OutcomeUnknown, RefusedError
from semel.client.identity import LedgerWrite
from semel.client.json_answer import Facts, facts_of, read
from semel.client.ledger.answers import committed
from semel.client.ledger.chain import MOST_BYTES
from semel.client.ledger.values import PlaceName
from semel.client.retry import ClientCaller, json_request
from semel.client.transport.http_transport import ClientAnswer, ClientRequest
from semel.kernel.keys import time_ordered_uuid

WRITE_CODES = "WRITE_ERROR_CODE_"
_BY_CONTENT = frozenset({400, 413})
"""Refusals that depend only on the request, so an earlier attempt had the same."""


class WriteAnswer(NamedTuple):
    """A successful answer, and whether it is a replay."""

    facts: Facts
    is_replayed: bool


class WriteCall:
    """A request and its attempts."""

    def __init__(self, caller: ClientCaller, request: ClientRequest, identity: LedgerWrite) -> None:
        self._caller = caller
        self._request = request
        self._identity = identity
        self.is_unsettled = False
        """Whether an attempt without an answer may have taken effect, or still may."""

    async def send(self) -> WriteAnswer:
        """The answer. Raises `RefusedError` if the transaction was not executed, `OutcomeUnknown` if that is not known.

        The server judges organization, vault and client before the identity. So after a lost answer their refusal says
        nothing about the transaction.
        """
        try:
            return await self._caller.answer_as(_answer, self._request, self._identity, self._again)
        except RefusedError as error:
            if self.is_unsettled and not is_verdict(error):
                raise OutcomeUnknown(f"{error} An earlier attempt may have taken effect.", self._identity) from error
            raise

    def _again(self, error: CallError) -> ClientRequest:
        self.is_unsettled = self.is_unsettled or error.is_unsettled
        return self._request


def _answer(answer: ClientAnswer) -> WriteAnswer:
    facts, is_replayed = facts_of(answer.body), answer.is_true("idempotency-replayed")
    check_committed(facts)
    return WriteAnswer(facts, is_replayed)


def check_committed(facts: Facts) -> None:
    """Raise BadAnswerError unless an answer tells what became of a transaction."""
    with suppress(FencedSequenceError):  # it does: `accepted` raises it
        read(lambda: committed(facts, is_replayed=False, key=None))


def is_verdict(error: RefusedError) -> bool:
    """Whether a refusal tells the outcome of earlier attempts, too."""
    return error.code.startswith(WRITE_CODES) or error.status in _BY_CONTENT


def write_request(place: PlaceName, body: bytes) -> ClientRequest:
    """The request of a write."""
    return json_request("POST", f"{place.path}/writes", body, most_bytes=MOST_BYTES)


def fresh_key() -> str:
    """A unique key; keys sort by creation time."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, token_bytes(10))
