"""What a caller is told when its patience ends: once an answer was lost, the outcome stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from semel.client.errors import NoAnswerError
from semel.client.retry import ClientCaller, Patience
from semel.client.transport import Access, ClientAnswer, Transport


class Scripted(Transport):
    """Answers nothing, for the reasons given one after the other."""

    def __init__(self, lost: Iterator[bool]) -> None:
        super().__init__(Access("http://127.0.0.1:1", None), 1)
        self._lost = lost

    async def request(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float, most_bytes: int
    ) -> ClientAnswer:
        raise NoAnswerError("nobody answers", is_unsettled=next(self._lost))


@pytest.mark.parametrize(
    ("lost", "is_unsettled"),
    [((True, False), True), ((False, True), True), ((False, False), False), ((True, True), True)],
)
def test_an_answer_that_was_lost_once_leaves_the_outcome_open(lost: tuple[bool, ...], is_unsettled: bool) -> None:
    caller = ClientCaller(Scripted(iter(lost)), Patience(tries=2, seconds=None), 1_000, lambda error: None)
    with pytest.raises(NoAnswerError) as raised:
        asyncio.run(caller.post("/", b"{}"))
    assert raised.value.is_unsettled is is_unsettled
