"""Retries: a call is repeated, unchanged, until it has an answer, within a number of attempts and a deadline.

A lost answer and a server without room are retried; a definite answer is not. A write is repeated with the same
identity, so a retry has no second effect; one without an identity is repeated only if it had no effect. If the deadline
passes and an attempt may have taken effect, `OutcomeUnknown` tells the identity.

An answer that cannot be read (cut off, a proxy's page, a missing member) is a lost one if it answers a write, whatever
its status; for a read it is `BadAnswerError`. So an answer is parsed inside the attempt: `answer_as` and `facts_as`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from semel.client.call_observer import ObservedCall
from semel.client.errors import (
    AccessError,
    BadAnswerError,
    CallError,
    InvalidArgumentError,
    NoAnswerError,
    OutcomeUnknown,
    RefusedError,
    SemelError,
    refusal,
)
from semel.client.identity import WriteIdentity
from semel.client.json_answer import UNREADABLE, Facts, facts_of, read
from semel.client.transport.http_transport import ANSWER_SECONDS, JSON, ClientAnswer, ClientRequest, Transport

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0
MOST_ASKED_SECONDS = 60.0
LEAST_ANSWER_SECONDS = 1.0
"""An attempt close to the deadline waits this long for its answer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The retry policy: the maximum attempts, and the deadline of a call in seconds; None means no limit."""

    tries: int | None = 8
    seconds: float | None = 60.0

    def is_over(self, tried: int, elapsed: float, pause: float) -> bool:
        """Whether a retry after this pause would exceed a limit."""
        if self.tries is not None and tried >= self.tries:
            return True
        return self.seconds is not None and elapsed + pause > self.seconds

    def has_ended(self, elapsed: float) -> bool:
        """Whether the deadline passed in a pause: by then a server may have dropped the key of a stopped client."""
        return self.seconds is not None and elapsed > self.seconds + LEAST_ANSWER_SECONDS

    def answer_seconds(self, elapsed: float) -> float:
        """How long an attempt waits for its answer: not past the deadline."""
        if self.seconds is None:
            return ANSWER_SECONDS
        return max(LEAST_ANSWER_SECONDS, min(ANSWER_SECONDS, self.seconds - elapsed))


ENDLESS = Patience(None, None)


def pause_seconds(tried: int, asked: float, chance: float) -> float:
    """Exponential backoff with jitter (0 to 1), in seconds.

    It is at least the server's `Retry-After`, up to one minute.
    """
    own = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tried - 1, 16))
    return max(own * (0.5 + chance / 2), min(asked, MOST_ASKED_SECONDS) * (1 + chance / 4))


T = TypeVar("T")
OnRetry = Callable[[CallError], None]
Refuse = Callable[[int, Facts, float], RefusedError]
"""Makes the error of an unsuccessful answer from its status, its members and its `Retry-After` in seconds."""
Instead = Callable[[CallError], ClientRequest]
"""Returns the request of the next attempt after an error."""
SAFE = frozenset({"GET", "HEAD"})


def _ignore(error: CallError) -> None:
    """Retries are not reported."""


class ClientCaller:
    """Calls one server, with retries."""

    def __init__(
        self,
        transport: Transport,
        patience: Patience,
        on_retry: OnRetry = _ignore,
        refuse: Refuse = refusal,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.patience = patience
        self.on_retry = on_retry
        self._refuse = refuse
        self._chance = chance

    def with_patience(self, patience: Patience) -> ClientCaller:
        """The same calls over the same connections, with another retry policy."""
        return ClientCaller(self.transport, patience, self.on_retry, self._refuse, self._chance)

    def endless(self) -> ClientCaller:
        """The same calls without a deadline, for readers that follow a log."""
        return self.with_patience(ENDLESS)

    async def call(
        self, request: ClientRequest, identity: WriteIdentity | None = None, instead: Instead | None = None
    ) -> ClientAnswer:
        """The successful answer to a request; raises the error of any other.

        A retry sends the same request, or the one that `instead` returns. A write without an identity is not retried
        after an attempt that may have taken effect.
        """
        return await self.answer_as(lambda answer: answer, request, identity, instead)

    async def answer_as(
        self,
        make: Callable[[ClientAnswer], T],
        request: ClientRequest,
        identity: WriteIdentity | None = None,
        instead: Instead | None = None,
    ) -> T:
        """What `make` reads from the successful answer; if it cannot, that is an answer that cannot be read."""

        async def once(answer_seconds: float) -> T:
            answer = self.checked(await self.transport.request(request, answer_seconds))
            return self.understood(lambda: make(answer))

        def again(error: CallError) -> None:
            nonlocal request
            request = request if instead is None else instead(error)

        return await self.insist(once, again, identity, is_repeatable=request.method in SAFE or identity is not None)

    async def facts(
        self, request: ClientRequest, identity: WriteIdentity | None = None, instead: Instead | None = None
    ) -> Facts:
        """The members of the JSON object in the answer."""
        return await self.answer_as(lambda answer: facts_of(answer.body), request, identity, instead)

    async def facts_as(
        self,
        make: Callable[[Facts], T],
        request: ClientRequest,
        identity: WriteIdentity | None = None,
        instead: Instead | None = None,
    ) -> T:
        """What `make` reads from the JSON object in the answer."""

        def made(answer: ClientAnswer) -> T:
            facts = facts_of(answer.body)
            return read(lambda: make(facts))

        return await self.answer_as(made, request, identity, instead)

    async def insist(
        self,
        attempt: Callable[[float], Awaitable[T]],
        again: Callable[[CallError], None],
        identity: WriteIdentity | None = None,
        *,
        is_repeatable: bool = True,
    ) -> T:
        """The result of an attempt with retries; `again` is called before each retry."""
        observer = self.transport.observer
        if observer is None:
            return await self._insist(attempt, again, identity, is_repeatable, None)
        call = observer.begin()
        try:
            result = await self._insist(attempt, again, identity, is_repeatable, call)
        except BaseException as error:
            call.ended(error)
            raise
        call.ended(None)
        return result

    async def _insist(
        self,
        attempt: Callable[[float], Awaitable[T]],
        again: Callable[[CallError], None],
        identity: WriteIdentity | None,
        is_repeatable: bool,
        observed: ObservedCall | None,
    ) -> T:
        network = self.transport.network
        began, tried, is_unsettled = network.now(), 0, False
        while True:
            tried += 1
            try:
                return await attempt(self.patience.answer_seconds(network.now() - began))
            except InvalidArgumentError:
                raise  # nothing was sent
            except SemelError as error:
                failed = _failed(error, identity, is_repeatable, is_unsettled)
                if failed is None:
                    raise
                is_unsettled = is_unsettled or failed.is_unsettled
                pause = pause_seconds(tried, failed.retry_after, self._chance())
                may_pass = isinstance(error, CallError | BadAnswerError) and error.may_pass
                may_repeat = may_pass and (is_repeatable or not is_unsettled)
                if not may_repeat or self.patience.is_over(tried, network.now() - began, pause):
                    last = _last(failed, is_unsettled, identity)
                    if last is error:
                        raise
                    raise last from error
                self.on_retry(failed)
                if observed is not None:
                    observed.retried(failed, pause)
                again(failed)
            await network.sleep(pause)
            if self.patience.has_ended(network.now() - began):
                raise _last(failed, is_unsettled, identity)

    async def rest(self, tried: int, error: CallError) -> None:
        """Wait before the next of `tried` attempts of something that goes on: a follower connects again."""
        self.on_retry(error)
        await self.transport.network.sleep(pause_seconds(tried, error.retry_after, self._chance()))

    def understood(self, make: Callable[[], T]) -> T:
        """A value of a successful answer. An answer that is not one of this protocol raises BadAnswerError."""
        try:
            return make()
        except SemelError:
            raise
        except UNREADABLE:
            raise self.transport.not_semel() from None

    def checked(self, answer: ClientAnswer) -> ClientAnswer:
        """The answer, if it is successful. Raises the error of any other."""
        if 200 <= answer.status < 300:
            return answer
        if 300 <= answer.status < 400 and answer.status != 304:
            redirected = self.transport.not_semel()
            redirected.may_pass = False
            raise redirected
        raise self.refused(answer)

    def refused(self, answer: ClientAnswer) -> RefusedError:
        """The error of an unsuccessful answer."""
        try:
            facts: Facts = facts_of(answer.body)
        except (ValueError, BadAnswerError):
            facts = {}
        error = self._refuse(answer.status, facts, answer.retry_after)
        error.headers = answer.headers
        return error


def _failed(
    error: SemelError, identity: WriteIdentity | None, is_repeatable: bool, is_unsettled: bool
) -> CallError | None:
    """The error of an attempt as the error of a call; None if it is another one.

    An answer that cannot be read tells nothing about a write; nor does a client that was closed after an attempt that
    may have taken effect.
    """
    if isinstance(error, CallError):
        return error
    is_bad = isinstance(error, BadAnswerError)
    if identity is not None and (is_bad or is_unsettled):
        return unknown_outcome(error, identity)
    if is_bad and not is_repeatable:
        return NoAnswerError(f"{error} The write may have taken effect.", is_unsettled=True)
    return None


def _last(error: CallError, is_unsettled: bool, identity: WriteIdentity | None) -> CallError:
    """The error of the last attempt, or `OutcomeUnknown` if any attempt may have taken effect.

    A refusal that is final tells the outcome, also of earlier attempts: all have the same identity. A credential is
    judged before the identity, so its refusal says nothing about them; nor does an answer without a code of Semel's,
    such as that of a proxy.
    """
    says_nothing = isinstance(error, AccessError) or (isinstance(error, RefusedError) and not error.code)
    error.is_unsettled = is_unsettled and (error.may_pass or says_nothing)
    if not error.is_unsettled or identity is None or isinstance(error, OutcomeUnknown):
        return error
    unknown = unknown_outcome(error, identity)
    unknown.retry_after, unknown.key = error.retry_after, error.key
    return unknown


def unknown_outcome(error: SemelError, identity: WriteIdentity) -> OutcomeUnknown:
    """The error of a write whose last attempt ended with this error."""
    return OutcomeUnknown(f"{error} The write may have taken effect.", identity)


def json_request(
    method: str,
    path: str,
    body: bytes,
    *,
    wait: float = 0.0,
    most_bytes: int = 0,
    headers: Mapping[str, str] | None = None,
) -> ClientRequest:
    """A request with a JSON body."""
    return ClientRequest(method, path, body, {"Content-Type": JSON, **(headers or {})}, wait, most_bytes)
