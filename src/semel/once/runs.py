"""Runs flows for synchronous functions and for coroutines, and renews the lease of a running call.

A renewal that fails changes nothing here: the lease ends, another call may take over, and this one raises `Fenced` when
it finishes.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from semel.once.calls import Elapsed, Flow, Need, Pause
from semel.once.claims import Act, OnceClaim, ReceiptChange
from semel.once.deferred_import import DeferredModule
from semel.once.errors import OnceError
from semel.once.stores import ReceiptStore

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = DeferredModule("asyncio")  # it would take a third of this package's import time

T = TypeVar("T")

RENEWALS = 3
"""Renewals per lease."""


def stopwatch() -> Elapsed:
    """A function that returns the seconds since now, by the monotonic clock."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


def play(store: ReceiptStore, flow: Flow[T]) -> T:
    """Run a flow in this thread."""
    try:
        need = next(flow)
        while True:
            try:
                answer = _done(store, need)
            except BaseException as error:  # noqa: BLE001 - the flow cleans up and raises it again
                need = flow.throw(error)
            else:
                need = flow.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


def _done(store: ReceiptStore, need: Need) -> object:
    if isinstance(need, ReceiptChange):
        return store.change(need)
    if isinstance(need, Pause):
        time.sleep(need.seconds)
        return None
    return need.function()


async def play_async(store: ReceiptStore, flow: Flow[T]) -> T:
    """Run a flow in this task. The store runs in a thread and does not block the event loop."""
    try:
        need = next(flow)
        while True:
            try:
                answer = await _done_async(store, need)
            except BaseException as error:  # noqa: BLE001 - as above
                need = flow.throw(error)
            else:
                need = flow.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


async def _done_async(store: ReceiptStore, need: Need) -> object:
    if isinstance(need, ReceiptChange):
        return await asyncio.to_thread(store.change, need)
    if isinstance(need, Pause):
        await asyncio.sleep(need.seconds)
        return None
    found = need.function()
    return await found if inspect.isawaitable(found) else found


@contextmanager
def renewed(store: ReceiptStore, claim: OnceClaim) -> Iterator[None]:
    """Renew a lease in a thread while a block runs."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(claim.lease_ms / 1_000 / RENEWALS):
            with suppress(OnceError):
                store.change(claim.to(Act.RENEW))

    thread = threading.Thread(target=renew, name="semel-once-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@asynccontextmanager
async def renewed_async(store: ReceiptStore, claim: OnceClaim) -> AsyncIterator[None]:
    """Renew a lease in a task while a block runs."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(claim.lease_ms / 1_000 / RENEWALS)
            with suppress(OnceError):
                await asyncio.to_thread(store.change, claim.to(Act.RENEW))

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
