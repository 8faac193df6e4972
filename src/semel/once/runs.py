"""Runs flows for synchronous functions and for coroutines, and guards the call that got its key.

A call that is stopped before its function began gives its key back: nothing has happened. The interruption may come
anywhere, from a signal too, so the claim is undone by whoever made it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, TypeVar

from semel.once.calls import Elapsed, Flow, Look, Need, Pause, never_run
from semel.once.claims import Act, FoundReceipt, OnceClaim, ReceiptChange
from semel.once.database import wait_for
from semel.once.deferred_import import DeferredModule, warn
from semel.once.drivers.base import AsyncWitness, Witness
from semel.once.errors import OnceError, StoreBusy
from semel.once.failures import handled_now
from semel.once.keeper import HeldLease
from semel.once.stores import ReceiptStore
from semel.once.table import PATIENCE_SECONDS, Row, Statement

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = DeferredModule("asyncio")  # it would take a third of this package's import time


T = TypeVar("T")


class CurrentCall:
    """The call that is running, as the function sees it.

    `fence` grows each time that a call takes the key over. A service that remembers the highest fence can refuse a call
    that lost its lease and does not know it.
    """

    __slots__ = ("_lease", "attempt", "fence", "key")

    def __init__(self, key: str, attempt: int, fence: int, lease: HeldLease[OnceClaim]) -> None:
        self.key = key
        """The key, to pass on to services that the function calls."""
        self.attempt = attempt
        """1 for the first call, one more for each that took over after a crash."""
        self.fence = fence
        self._lease = lease

    @property
    def lease_left(self) -> float:
        """Seconds for which no other call can take over, without another renewal."""
        return self._lease.left_seconds

    @property
    def is_lost(self) -> bool:
        """Whether another call has taken over. This one stops best before its next effect."""
        return self._lease.is_lost


Ending = Callable[[BaseException, BaseException | None], Flow[None]]
"""Gets what a call raised, and the exception that was being handled when it began."""

_current: ContextVar[CurrentCall] = ContextVar("semel_once_call")


def current_call() -> CurrentCall:
    """The call that is running."""
    try:
        return _current.get()
    except LookupError:
        raise OnceError("current_call() works only inside a function or a request that Once runs.") from None


def current_key() -> str:
    """The key of the running call, to pass on to services that the function calls."""
    try:
        return _current.get().key
    except LookupError:
        raise OnceError("current_key() works only inside a function or a request that Once runs.") from None


class GuardedRun:
    """One call from its claim to its end: its lease, and what becomes of its key if it raises.

    The order of a caller: `hold` as the last act before the function, `settle` for any exception, or else `end` when
    the result is stored.
    """

    def __init__(self, store: ReceiptStore, claim: OnceClaim, ending: Ending, name: str) -> None:
        self.store, self.claim, self._name = store, claim, name
        self._settle_with = ending
        """The flow that settles the key of a call that began and raised."""
        self._lease: HeldLease[OnceClaim] | None = None
        self._token: Token[CurrentCall] | None = None
        self._before = handled_now()
        self.has_begun = False

    def hold(self, found: FoundReceipt) -> None:
        """Keep the lease of a key that this call has claimed, until `end`."""
        self._lease = self.store.keeper.hold(self.claim, self.claim.lease_ms / 1_000, self._name)
        self._token = _current.set(CurrentCall(self.claim.who.key, found.attempt, found.fence, self._lease))
        self.has_begun = True

    def settle(self, error: BaseException) -> None:
        """Settle the key of a call that raised."""
        flow = self._ending(error)
        try:
            if flow is not None:
                play(self.store, flow)
        finally:
            self.end()

    async def settle_async(self, error: BaseException) -> None:
        """`settle` in an event loop. A key that was not used is given back behind the caller, who may have no time."""
        flow = self._ending(error)
        try:
            if flow is not None and not self.has_begun:
                self.store.change_later(self.claim.to(Act.GIVE_BACK))
            elif flow is not None:
                await wait_to_end(asyncio.ensure_future(play_async(self.store, flow)))
        finally:
            self.end()

    def _ending(self, error: BaseException) -> Flow[None] | None:
        if self.has_begun:
            return self._settle_with(error, self._before)
        # An error of this package was raised before anything was claimed. A signal may come at any time.
        return None if isinstance(error, OnceError) else never_run(self.claim)

    def end(self) -> None:
        """Renew the lease no more."""
        if self._lease is not None:
            self.store.keeper.drop(self._lease)
        if self._token is not None:
            _current.reset(self._token)
            self._token = None


def is_in_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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
                answer = _fulfil(store, need)
            except BaseException as error:  # noqa: BLE001 - the flow cleans up and raises it again
                need = flow.throw(error)
            else:
                need = flow.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


def _fulfil(store: ReceiptStore, need: Need) -> object:
    if isinstance(need, ReceiptChange):
        try:
            return store.change(need)
        except BaseException as error:
            # A signal may have interrupted a claim behind its commit, and an answer may be lost.
            if need.is_due_without_caller and not isinstance(error, Exception):
                store.change_later(need)
            undone = need.undone()
            if undone is not None and not isinstance(error, StoreBusy):
                store.change_later(undone)
            raise
    if isinstance(need, Pause):
        time.sleep(need.seconds)
        return None
    if isinstance(need, Look):
        return _look(need.witness, need.statement)
    with_lease = store.keeper.hold(need.claim, need.claim.lease_ms / 1_000, "ask")
    try:
        return need.function()
    finally:
        store.keeper.drop(with_lease)


async def play_async(store: ReceiptStore, flow: Flow[T]) -> T:
    """Run a flow in this task. The store runs in a thread of its own and does not block the event loop."""
    try:
        need = next(flow)
        while True:
            try:
                answer = await _fulfil_async(store, need)
            except BaseException as error:  # noqa: BLE001 - as above
                need = flow.throw(error)
            else:
                need = flow.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


async def wait_to_end(task: asyncio.Future[object]) -> None:
    """Wait for a task whatever happens. A cancellation meanwhile is raised at its end: some scopes cancel each wait."""
    stopped: BaseException | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except BaseException as error:  # noqa: BLE001 - it is raised below
            stopped = error
    task.result()
    if stopped is not None:
        raise stopped


async def _fulfil_async(store: ReceiptStore, need: Need) -> object:
    if isinstance(need, ReceiptChange):
        return await store.change_async(need)
    if isinstance(need, Pause):
        await asyncio.sleep(need.seconds)
        return None
    if isinstance(need, Look):
        return await _look_async(store, need.witness, need.statement)
    with_lease = store.keeper.hold(need.claim, need.claim.lease_ms / 1_000, "ask")
    try:
        found = need.function()
        return await found if inspect.isawaitable(found) else found
    finally:
        store.keeper.drop(with_lease)


def _look(witness: Witness | AsyncWitness, statement: Statement) -> Sequence[Row] | None:
    if isinstance(witness, AsyncWitness):
        return None  # a synchronous server has no event loop for it
    try:
        return witness.look(statement)
    except Exception as error:  # noqa: BLE001 - any driver's error; the request is settled by its retry
        warn("The receipt of a joined transaction could not be read: %s", error)
        return None


async def _look_async(
    store: ReceiptStore, witness: Witness | AsyncWitness, statement: Statement
) -> Sequence[Row] | None:
    try:
        if isinstance(witness, Witness):
            # A look has its own limit, and `_look` its own warning. Here no thread may be free for it.
            return await wait_for(store.database.submit(lambda: _look(witness, statement)), PATIENCE_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await witness.look(statement)
    except Exception as error:  # noqa: BLE001 - as above
        warn("The receipt of a joined transaction could not be read: %s", error)
        return None
