"""Large bodies are read in a thread, whatever they are for: others do not wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from semel.server.http.answer import Answer, StreamedAnswer
from semel.server.http.request import Request
from semel.server.quotas.accounts import QuotaAccount
from semel.server.thread_pool import APART_BYTES
from semel.surfaces.ledger import calls, read_calls
from semel.surfaces.ledger.http import LedgerHttp
from tests.ledger.wire.rig import Office, in_office

CALLS: dict[str, tuple[str, str, Any, str]] = {
    "write": ("POST", "{org}/writes", calls, "parse_write"),
    "batch": ("POST", "{org}/batches", calls, "parse_batch"),
    "batch read": ("POST", "{org}/entities:batchRead", read_calls, "parse_batch_read"),
    "new organization": ("POST", "", calls, "parse_org"),
    "organization": ("PATCH", "{org}", calls, "parse_org_change"),
    "new vault": ("POST", "{org}/vaults", calls, "parse_vault"),
    "vault": ("PATCH", "{org}/vaults/{vault}", calls, "parse_vault_change"),
}


class Recorder:
    """The connection of one request; keeps its answer."""

    account: QuotaAccount | None = None

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer | StreamedAnswer] = asyncio.get_running_loop().create_future()

    def reply(self, answer: Answer | StreamedAnswer) -> None:
        """Keep it."""
        self.answer.set_result(answer)

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Run it and keep what it gives."""
        self.answer = asyncio.ensure_future(work)

    proceed = later

    def learn(self, make: Any, size: int, prefix: bytes = b"") -> None:
        """Nothing is learned."""

    async def read_piece(self) -> bytes:
        """The body is whole."""
        return b""

    @property
    def connection(self) -> Recorder:
        """It is its own connection."""
        return self

    def reply_late(self, answer: Answer, seconds: float) -> None:
        """Nothing is held back."""

    def bound_unsent(self, size: int) -> None:
        """There is no buffer."""

    def abort(self) -> None:
        """There is nothing to end."""


async def ask(host: LedgerHttp, method: str, path: str, body: bytes) -> int:
    """The status of the answer."""
    recorder = Recorder()
    request = Request(recorder, method, path.encode())
    request.body = body
    try:
        answer = host.handle(request) or await recorder.answer
    except Exception as error:
        refused = host.refuse(request, error)
        if refused is None:
            raise
        answer = refused
    return answer.status


@pytest.mark.parametrize("name", CALLS)
def test_a_large_body_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    method, path, module, function = CALLS[name]
    parse: Callable[..., object] = getattr(module, function)
    threads: list[threading.Thread] = []

    def watched(*arguments: Any) -> object:
        threads.append(threading.current_thread())
        return parse(*arguments)

    monkeypatch.setattr(module, function, watched)

    async def work(office: Office) -> None:
        place = await office.vault()
        host = LedgerHttp(office.context)
        target = f"/ledger/v1/orgs/{path}".rstrip("/").format(org=place.org, vault=place.vault)
        for filler in (0, APART_BYTES):
            assert await ask(host, method, target, b'{"no such member":"%s"}' % (b"x" * filler)) == 400
        assert [thread is threading.main_thread() for thread in threads] == [True, False]

    in_office(tmp_path, work)
