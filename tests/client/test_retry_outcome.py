"""What the last error of a call says about the attempts before it."""

from __future__ import annotations

import pytest

from semel.client import OutcomeUnknown, Patience
from semel.client.access import Access
from semel.client.errors import CallError, ConflictError, NoAnswerError, refusal
from semel.client.identity import StreamAppend
from semel.client.retry import ClientCaller
from semel.client.transport.http_transport import Transport
from semel.client.transport.network import finished
from tests.client.both import network_of
from tests.client.cut_network import CutNetwork

IDENTITY = StreamAppend("s", "k")


def last_error(*errors: CallError) -> CallError:
    """What a call raises whose attempts fail like this."""
    transport = Transport(Access("http://127.0.0.1:1"), CutNetwork(network_of("blocking")), 1)
    left = list(errors)

    async def attempt(answer_seconds: float) -> None:
        raise left.pop(0)

    with pytest.raises(CallError) as raised:
        finished(ClientCaller(transport, Patience(len(errors))).insist(attempt, lambda error: None, IDENTITY))
    return raised.value


@pytest.mark.parametrize("facts", [{}, {"code": "UNAUTHORIZED", "detail": "The token has expired."}])
@pytest.mark.parametrize("status", [401, 403])
def test_the_refusal_of_a_credential_says_nothing_about_a_lost_answer(status: int, facts: dict[str, str]) -> None:
    told = last_error(NoAnswerError("lost", is_unsettled=True), refusal(status, facts))
    assert isinstance(told, OutcomeUnknown)
    assert told.identity == IDENTITY
    settled = last_error(NoAnswerError("no server", is_unsettled=False), refusal(status, facts))
    assert not isinstance(settled, OutcomeUnknown)


def test_a_verdict_on_the_identity_tells_what_became_of_a_lost_answer() -> None:
    taken = refusal(409, {"code": "STREAM_CLOSED", "detail": "It is closed."})
    assert type(last_error(NoAnswerError("lost", is_unsettled=True), taken)) is ConflictError
    proxys = last_error(NoAnswerError("lost", is_unsettled=True), refusal(409, {}))
    assert isinstance(proxys, OutcomeUnknown)


class StoppedNetwork(CutNetwork):
    """Its process stands still for an hour in each pause, as a suspended machine does."""

    def __init__(self) -> None:
        super().__init__(network_of("blocking"))
        self._stood_still = 0.0

    async def sleep(self, seconds: float) -> None:
        self._stood_still += 3_600.0

    def now(self) -> float:
        return super().now() + self._stood_still


def test_nothing_is_sent_again_long_after_the_deadline() -> None:
    transport = Transport(Access("http://127.0.0.1:1"), StoppedNetwork(), 1)
    attempts = 0

    async def attempt(answer_seconds: float) -> None:
        nonlocal attempts
        attempts += 1
        raise NoAnswerError("lost", is_unsettled=True)

    with pytest.raises(OutcomeUnknown):
        finished(ClientCaller(transport, Patience(8, 60.0)).insist(attempt, lambda error: None, IDENTITY))
    assert attempts == 1
