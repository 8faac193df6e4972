"""What a caller is told when its patience ends: once an answer was lost, the outcome stays open."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from semel.client.access import Access, TlsFiles
from semel.client.errors import NoAnswerError, OutcomeUnknown
from semel.client.identity import JobKey
from semel.client.retry import ClientCaller, Patience, json_request
from semel.client.transport.http_transport import ANSWER_SECONDS, ClientAnswer, ClientRequest, Transport
from semel.client.transport.network import finished
from semel.client.transport.socket_network import BlockingNetwork

WRITE = json_request("POST", "/", b"{}")


class Scripted(Transport):
    """Answers nothing, for the reasons given one after the other."""

    def __init__(self, lost: Iterator[bool]) -> None:
        super().__init__(Access("http://127.0.0.1:1", None), BlockingNetwork(cache(TlsFiles().context)), 1)
        self._fates = lost

    async def request(self, request: ClientRequest, answer_seconds: float = ANSWER_SECONDS) -> ClientAnswer:
        raise NoAnswerError("nothing answers", is_unsettled=next(self._fates))


@pytest.mark.parametrize(
    ("lost", "is_unsettled"),
    [((True, False), True), ((False, True), True), ((False, False), False), ((True, True), True)],
)
def test_an_answer_that_was_lost_once_leaves_the_outcome_open(lost: tuple[bool, ...], is_unsettled: bool) -> None:
    caller = ClientCaller(Scripted(iter(lost)), Patience(tries=2, seconds=None))
    with pytest.raises(NoAnswerError) as raised:
        finished(caller.call(WRITE, JobKey("k")))
    assert raised.value.is_unsettled is is_unsettled
    assert isinstance(raised.value, OutcomeUnknown) is is_unsettled


def test_a_write_without_an_identity_is_not_repeated_after_a_lost_answer() -> None:
    answers = iter((False, True, False))
    caller = ClientCaller(Scripted(answers), Patience(tries=9, seconds=None))
    with pytest.raises(NoAnswerError):
        finished(caller.call(WRITE))
    assert list(answers) == [False]
