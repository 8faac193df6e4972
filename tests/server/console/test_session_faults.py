"""A call of the console whose sessions cannot be read is answered all the same."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from semel.engine.contract import OverloadedError
from semel.server.app import App
from semel.server.http.answer import Answer
from semel.server.http.request import Request


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("broken"), 500), (OverloadedError("full"), 401)])
def test_a_read_of_sessions_that_fails_ends_in_an_answer(error: Exception, status: int) -> None:
    replies: list[Answer] = []

    async def refresh() -> None:
        raise error

    app = cast(Any, App.__new__(App))
    app.console_calls = SimpleNamespace(sessions=SimpleNamespace(refresh=refresh))
    app.failed = lambda request, fault: Answer(500, [])
    app._handle = lambda request, surface, by_console: Answer(401, [])
    request = cast(Request, SimpleNamespace(exchange=SimpleNamespace(reply=replies.append)))
    asyncio.run(app._handle_after_reading(request, None))
    assert [answer.status for answer in replies] == [status]
