"""A transaction as a load generator knows it, a client that sends one after another, and how both look over HTTP."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from typing import NamedTuple

from bench.jobs_load import BrokenError, Connection, post
from bench.jobs_measures import ANSWERED
from bench.load_keys import BODY
from bench.tally import Tally

VALUE = BODY
"""Of every entity: about 200 bytes."""

_OPERATION = b'{"setEntity":{"key":"user:%012d","value":"' + b64encode(VALUE) + b'"}}'


class Scope(NamedTuple):
    """The vault that is written to."""

    org: int
    vault: int


class Draft(NamedTuple):
    """One transaction: whose, its sequence or its key, and the numbers of the entities that it sets."""

    client: int
    sequence: int | None
    key: bytes
    entities: list[int]
    is_batch: bool


class Request(NamedTuple):
    """What is sent, and how the body of the answer must begin."""

    content: bytes
    expected: bytes


class Client(Connection):
    """A client of the ledger on a connection of its own: one request after another, until there are no more."""

    success: bytes
    """How the answer to a new transaction begins."""

    def __init__(self, requests: Iterator[Request], tally: Tally, answers: list[bytes] | None = None) -> None:
        super().__init__()
        self._requests = requests
        self._tally = tally
        self._answers = answers
        self._expected = b""
        self._sent_at = 0.0

    @staticmethod
    def content(scope: Scope, draft: Draft) -> bytes:
        """What is sent for a transaction."""
        raise NotImplementedError

    def send(self, content: bytes) -> None:
        """Send one request."""
        raise NotImplementedError

    def begin(self) -> None:
        """Send the next one, if there is one."""
        request = next(self._requests, None)
        if request is None:
            self.stop()
            return
        self._expected = request.expected
        self._sent_at = time.perf_counter()
        self.send(request.content)

    def answered(self, body: bytes) -> None:
        """Check and count it."""
        if not body.startswith(self._expected):
            raise BrokenError(f"not {self._expected!r}: {body[:500]!r}")
        self._tally.count(ANSWERED, time.perf_counter() - self._sent_at)
        if self._answers is not None:
            self._answers.append(body)
        if self._tally.is_over:
            self.stop()
        else:
            self.begin()


class HttpClient(Client):
    """Over HTTP/1.1, in JSON."""

    success = b'{"success":{"txId"'

    @staticmethod
    def content(scope: Scope, draft: Draft) -> bytes:
        """A whole request."""
        call = "batches" if draft.is_batch else "writes"
        return post(f"/ledger/v1/orgs/{scope.org}/vaults/{scope.vault}/{call}", _body(draft))

    @staticmethod
    def many(scope: Scope, drafts: list[Draft]) -> bytes:
        """A whole request with many transactions."""
        body = b'{"transactions":[%s]}' % b",".join(map(_body, drafts))
        return post(f"/ledger/v1/orgs/{scope.org}/vaults/{scope.vault}/writes:bulk", body)

    def send(self, content: bytes) -> None:
        """As it is."""
        self.transport.write(content)


def _body(draft: Draft) -> bytes:
    operations = b",".join([_OPERATION % number for number in draft.entities])
    listed = b'[{"operations":[%s]}]' % operations if draft.is_batch else b"[%s]" % operations
    return b'{"clientId":"client-%d",%s,"operations":%s}' % (draft.client, _identity(draft), listed)


def _identity(draft: Draft) -> bytes:
    if draft.sequence is None:
        return b'"idempotencyKey":"%s"' % b64encode(draft.key)
    return b'"sequence":"%d"' % draft.sequence
