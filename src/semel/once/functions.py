"""`Once`: functions with effects outside the database, each run once per key.

    store = Once("app.db")

    @store.once(key=lambda order: f"charge:{order.id}", on_crash="ask", ask=find_charge)
    def charge(order): ...

A call claims its key, runs the function under a lease that is renewed, and stores the result. A retry gets the stored
result. `on_crash` decides what happens after a crash; the default, `refuse`, never runs a function twice.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from semel.once.calls import OncePolicy, entered, failed, finished, no_result, remembered
from semel.once.claims import Act, FoundReceipt, Move, OnceClaim, ReceiptChange
from semel.once.codec import JSON, Codec
from semel.once.errors import InvalidKey, OnceError
from semel.once.identity import OnceIdentity, fingerprint, identity
from semel.once.runs import play, play_async, renewed, renewed_async, stopwatch
from semel.once.stores import Clock, PerProcess, ReceiptStore, store_at
from semel.once.table import DONE, TABLE
from semel.once.units import Duration, milliseconds, seconds

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")

_key: ContextVar[str] = ContextVar("semel_once_key")


def current_key() -> str:
    """The key of the running call, to pass on to services that the function calls."""
    try:
        return _key.get()
    except LookupError:
        raise OnceError("current_key() works only inside a function that Once runs.") from None


@dataclass(frozen=True)
class Inspection:
    """The receipt of a key."""

    key: str
    state: Literal["running", "unknown", "done", "no result", "failed"]
    result: Any
    created_at: datetime


class Once:
    """A store of receipts: the path of a SQLite file, a postgresql:// URL, or the URL of a Semel server.

    `token` is the bearer token for a Semel server, by default the variable `SEMEL_TOKEN`. `clock` applies to a file and
    to memory; PostgreSQL and a Semel server use their own clock.
    """

    def __init__(
        self,
        place: str,
        *,
        table: str = TABLE,
        codec: Codec = JSON,
        clock: Clock = time.time,
        token: str | None = None,
    ) -> None:
        is_memory = ":memory:" in str(place) or "mode=memory" in str(place)
        bearer = token or os.environ.get("SEMEL_TOKEN")
        self._store = PerProcess(lambda: store_at(str(place), table, clock, bearer), is_copied=is_memory)
        self.codec = codec

    @classmethod
    def memory(cls, *, codec: Codec = JSON, clock: Clock = time.time) -> Once:
        """Receipts in memory, for tests."""
        return cls(":memory:", codec=codec, clock=clock)

    @property
    def store(self) -> ReceiptStore:
        """The store, with connections of this process: a forked child opens its own."""
        return self._store.get()

    def close(self) -> None:
        """Close the store's connections."""
        if not self._store.is_parents:
            self.store.close()

    def once(
        self,
        *,
        key: Callable[..., object],
        scope: object = None,
        compare: Callable[..., Any] | None = None,
        keep: Duration = "7d",
        lease: Duration = "60s",
        in_flight: Literal["wait", "raise"] = "wait",
        wait: Duration = "10s",
        on_crash: Literal["refuse", "retry", "ask"] = "refuse",
        ask: Callable[..., Any] | None = None,
        remember: tuple[type[Exception], ...] = (),
    ) -> Callable[[Callable[P, T]], OnceFunction[P, T]]:
        """Run a function once for each key.

        `key` and `compare` get the function's arguments: `key` returns the key of the call, `compare` the values that
        must be equal in two calls with that key, by default all arguments. `scope` is the function's name by default.
        `lease` is how long a call counts as running after a crash. `ask` gets the arguments too, and returns
        `once.Happened(result)` if the earlier call took effect, else None.
        """
        if (on_crash == "ask") != (ask is not None):
            raise InvalidKey("Pass on_crash='ask' and ask= together: ask= is a function that finds out what happened.")
        lease_ms = milliseconds(lease)
        if lease_ms < 1:
            raise InvalidKey("lease must be at least 1 ms.")
        policy = OncePolicy(self.codec, in_flight, seconds(wait), on_crash, ask, remember)
        terms = OnceTerms(key, scope, compare, milliseconds(keep), lease_ms, policy)
        return lambda function: made(self, function, terms)


@dataclass(frozen=True)
class OnceTerms:
    """The options of a decorator."""

    key: Callable[..., object]
    scope: object
    compare: Callable[..., Any] | None
    keep_ms: int
    lease_ms: int
    policy: OncePolicy


class OnceFunction(Generic[P, T]):
    """A function that runs once per key."""

    def __init__(self, once: Once, function: Callable[P, T], terms: OnceTerms) -> None:
        functools.update_wrapper(self, function)
        self._once = once
        self._function = function
        self._terms = terms
        self._signature = inspect.signature(function)
        name = f"{_home(function.__module__)}.{function.__qualname__}"
        self._scope = name if terms.scope is None else terms.scope
        self._is_method = False

    def __set_name__(self, owner: type, name: str) -> None:
        """Marks a method: `self` is not compared between two calls."""
        self._is_method = True

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(
        self: OnceFunction[Concatenate[S, Q], T], instance: S, owner: type | None = None
    ) -> OnceFunction[Q, T]: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The bound method, which has `inspect`, `resolve` and `forget` too."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function, or return the result of the first call."""
        claim, elapsed = self._claim(args, kwargs), stopwatch()
        once, policy = self._once, self._terms.policy
        found = play(once.store, entered(claim, policy, elapsed, self._prober(args, kwargs)))
        if found.move is not Move.RUN:
            return self._told(claim, found)
        token = _key.set(claim.who.key)
        try:
            with renewed(once.store, claim):
                value = self._function(*args, **kwargs)
        except BaseException as error:
            play(once.store, failed(claim, policy, error))
            raise
        finally:
            _key.reset(token)
        play(once.store, finished(claim, once.codec, value))
        return value

    def __reduce__(self) -> str:
        """Pickle by name, as a function is, so that a process pool can call it."""
        return self._function.__qualname__

    def inspect(self, key: object) -> Inspection | None:
        """The receipt of a key, or None."""
        rows = self._once.store.change(ReceiptChange(Act.FIND, self._who(key)))
        if not rows:
            return None
        _, state, result, _, left_ms, created_ms = rows[0]
        is_unknown = state == "running" and int(left_ms or 0) <= 0
        value = self._once.codec.loads(result) if state == DONE and result is not None else result
        at = datetime.fromtimestamp(int(created_ms) / 1_000, UTC)
        return Inspection(str(key), "unknown" if is_unknown else state, value, at)

    def resolve(self, key: object, result: Any = None) -> None:
        """Record that a call whose outcome is unknown took effect. Every retry gets this result."""
        text = None if result is None else self._once.codec.dumps(result)
        change = ReceiptChange(Act.RESOLVE, self._who(key), result=text, keep_ms=self._terms.keep_ms)
        if not self._once.store.change(change):
            raise OnceError(f"The key {str(key)!r} has no unknown outcome: there is nothing to resolve.")

    def forget(self, key: object) -> bool:
        """Delete the receipt of a key, so that the next call runs. Returns whether there was one."""
        return bool(self._once.store.change(ReceiptChange(Act.FORGET, self._who(key))))

    def _who(self, key: object) -> OnceIdentity:
        return identity(self._scope, key)

    def _claim(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OnceClaim:
        terms = self._terms
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = list(bound.arguments.items())[1 if self._is_method else 0 :]
        compared = dict(named) if terms.compare is None else terms.compare(*args, **kwargs)
        who = self._who(terms.key(*args, **kwargs))
        return OnceClaim(who, fingerprint(compared), uuid.uuid4().hex, terms.keep_ms, terms.lease_ms)

    def _prober(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        ask = self._terms.policy.ask
        return lambda: None if ask is None else ask(*args, **kwargs)

    def _told(self, claim: OnceClaim, found: FoundReceipt) -> T:
        """Return the stored result of a call that did not run, or raise its stored error."""
        if found.move is Move.RAISE:
            raise remembered(found.result or "", self._terms.policy)
        if found.move is Move.NO_RESULT:
            raise no_result(claim.who.key, found.result or "")
        value: T = self._once.codec.loads(found.result) if found.result is not None else None  # type: ignore[assignment]
        return value


class OnceCoroutineFunction(OnceFunction[P, T]):
    """`OnceFunction` for a coroutine function. From Python 3.12 on, `inspect` recognizes it as one."""

    def __init__(self, once: Once, function: Callable[P, T], terms: OnceTerms) -> None:
        super().__init__(once, function, terms)
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:  # type: ignore[override]
        """Run the function, or return the result of the first call."""
        claim, elapsed = self._claim(args, kwargs), stopwatch()
        once, policy = self._once, self._terms.policy
        turn = entered(claim, policy, elapsed, self._prober(args, kwargs))
        found = await play_async(once.store, turn)
        if found.move is not Move.RUN:
            return self._told(claim, found)
        token = _key.set(claim.who.key)
        try:
            async with renewed_async(once.store, claim):
                value: T = await self._function(*args, **kwargs)  # type: ignore[misc]
        except BaseException as error:
            await play_async(once.store, failed(claim, policy, error))
            raise
        finally:
            _key.reset(token)
        await play_async(once.store, finished(claim, once.codec, value))
        return value


def made(once: Once, function: Callable[P, T], terms: OnceTerms) -> OnceFunction[P, T]:
    """The wrapper of a function or coroutine function."""
    if inspect.iscoroutinefunction(function):
        return OnceCoroutineFunction(once, function, terms)  # type: ignore[arg-type] # its result is awaited inside
    return OnceFunction(once, function, terms)


def _home(module: str) -> str:
    """The import name of a module, also for the script that was started (`__main__`) and for its child processes.

    The scope of a function contains this name. It must be the same when another program imports a script that was
    killed: else the function would run again there.
    """
    if module not in ("__main__", "__mp_main__"):
        return module
    main = sys.modules[module]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return module if path is None else os.path.splitext(os.path.basename(path))[0]  # noqa: PTH119,PTH122 - no import
