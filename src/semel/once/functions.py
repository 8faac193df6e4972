"""`Once`: functions with effects outside the database, each run once per key.

    store = Once("app.db")

    @store.once(key="charge:{order.id}", on_crash="ask", ask=find_charge)
    def charge(order): ...

A call claims its key, runs the function under a lease that is renewed, and stores the result. A retry gets the stored
result. `on_crash` decides what happens after a crash, and after an exception that does not show that nothing happened;
the default, `refuse`, never runs a function twice.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, get_args, overload

from semel.once.calls import OncePolicy, UnfinishedError, entered, failed, finished, no_result, remembered
from semel.once.claims import Act, FoundReceipt, Move, OnceClaim, ReceiptChange
from semel.once.clock import Clock
from semel.once.codec import JSON, Codec, text_of
from semel.once.errors import InvalidKey, OnceError
from semel.once.identity import (
    KeyReader,
    OnceIdentity,
    fingerprint,
    identity,
    is_async,
    is_generator_function,
    key_reader,
    text_of_id,
)
from semel.once.runs import GuardedRun, is_in_loop, play, play_async, stopwatch
from semel.once.stores import ReceiptStore, store_at
from semel.once.table import DONE, TABLE
from semel.once.units import Duration, lasting, seconds

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool
    from sqlalchemy import Engine

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
OnCrash = Literal["refuse", "retry", "ask"]
InFlightOption = Literal["wait", "raise"]
ExceptionKinds = tuple[type[Exception], ...]


@dataclass(frozen=True)
class Inspection:
    """The receipt of a key."""

    key: str
    state: Literal["running", "unknown", "done", "no result", "failed"]
    result: Any
    created_at: datetime
    """When the call began that is running, or that left the receipt."""
    attempt: int
    """1 for the first call, one more for each that took over."""


class Once:
    """A store of receipts: the path of a SQLite file, a postgresql:// URL, or an engine or pool of your application.

    An engine is SQLAlchemy's, and a pool is `psycopg_pool.ConnectionPool`; both are synchronous. `clock` applies to a
    file and to memory; PostgreSQL uses its own clock.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Engine | ConnectionPool[Any],
        *,
        table: str = TABLE,
        codec: Codec = JSON,
        clock: Clock = time.time,
    ) -> None:
        if not (callable(getattr(codec, "dumps", None)) and callable(getattr(codec, "loads", None))):
            raise InvalidKey(f"codec must have dumps and loads, as semel.once.Codec, and {codec!r} has not.")
        self.store: ReceiptStore = store_at(place, table, clock)
        self.codec = codec
        self._local_functions: dict[str, tuple[Any, list[Any]]] = {}

    @classmethod
    def memory(cls, *, codec: Codec = JSON, clock: Clock = time.time) -> Once:
        """Receipts in memory, for tests."""
        return cls(":memory:", codec=codec, clock=clock)

    def close(self) -> None:
        """Close the store's connections."""
        self.store.close()

    def once(
        self,
        *,
        key: Callable[..., object] | str,
        scope: object = None,
        compare: Callable[..., Any] | None = None,
        keep: Duration = "7d",
        lease: Duration = "60s",
        in_flight: InFlightOption = "wait",
        wait: Duration = "10s",
        on_crash: OnCrash = "refuse",
        ask: Callable[..., Any] | None = None,
        remember: ExceptionKinds = (),
        releases: ExceptionKinds = (),
        unknown: ExceptionKinds = (),
    ) -> Callable[[Callable[P, T]], OnceFunction[P, T]]:
        """Run a function once for each key.

        `key` is a text with the function's parameters in braces, as `"charge:{order.id}"`, the name of a parameter, or
        a function that gets the arguments. `compare` gets the arguments and returns the values that must be equal in
        two calls with that key, by default all arguments. `scope` is the function's name by default. `lease` is how
        long a call counts as running after a crash. `ask` gets the arguments too, and returns `once.Happened(result)`
        if the earlier call took effect, else None. Exceptions in `remember` are results, those in `releases` show that
        nothing happened, and those in `unknown` do not.
        """
        check_choice("in_flight", in_flight, get_args(InFlightOption))
        check_choice("on_crash", on_crash, get_args(OnCrash))
        check_kinds(remember=remember, releases=releases, unknown=unknown)
        if (on_crash == "ask") != (ask is not None):
            raise InvalidKey("Pass on_crash='ask' and ask= together: ask= is a function that finds out what happened.")
        if ask is not None and not callable(ask):
            raise InvalidKey(f"ask must be a function that finds out what happened, not {ask!r}.")
        if scope is not None:
            text_of_id("scope", scope)
        policy = OncePolicy(self.codec, in_flight, seconds(wait), on_crash, ask, remember, releases, unknown)
        terms = OnceTerms(key, scope, compare, lasting("keep", keep), lasting("lease", lease), policy)
        return lambda function: decorate(self, function, terms)


def check_choice(option: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a value that an option does not have; a misspelled policy would be another policy."""
    if value not in choices:
        raise InvalidKey(f"{option} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def check_kinds(**options: object) -> None:
    """Refuse what `isinstance` would take in another sense, or not at all."""
    for option, kinds in options.items():
        if not isinstance(kinds, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds
        ):
            raise InvalidKey(f"{option} must be a tuple of classes of exceptions, as (CardDeclined,), not {kinds!r}.")


@dataclass(frozen=True)
class OnceTerms:
    """The options of a decorator."""

    key: Callable[..., object] | str
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
        self._key_of: KeyReader = key_reader(terms.key, self._signature)
        self._name = _name_of(function)
        self._scope = _scope_of(function, once._local_functions) if terms.scope is None else terms.scope
        inner = inspect.unwrap(function)
        self._wraps_coroutines = is_async(inner)
        self._code: CodeType | None = getattr(inner, "__code__", None)
        self._is_method = _is_method(function, self._signature)

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
        """Run the function, or return the result of the first call.

        Under a decorator that is no coroutine function, a coroutine function is awaited if an event loop runs here.
        """
        if self._wraps_coroutines and is_in_loop():
            awaited: Any = self._call_async(args, kwargs)
            return awaited  # type: ignore[no-any-return] # the type of the decorator
        claim, elapsed = self._claim(args, kwargs), stopwatch()
        store, policy = self._once.store, self._terms.policy
        run = GuardedRun(store, claim, functools.partial(failed, claim, policy), self._name)
        try:
            value: Any = None
            found = play(store, entered(claim, policy, elapsed, self._prober(args, kwargs)))
            if found.move is Move.RUN:
                run.hold(found)
                value = self._finished(self._function(*args, **kwargs))
        except BaseException as error:
            run.settle(error)
            raise
        if found.move is not Move.RUN:
            return self._stored(claim, found)
        try:
            play(store, finished(claim, self._once.codec, value))
        finally:
            run.end()
        returned: T = value
        return returned

    async def _call_async(self, args: Any, kwargs: Any) -> T:
        claim, elapsed = self._claim(args, kwargs), stopwatch()
        store, policy = self._once.store, self._terms.policy
        run = GuardedRun(store, claim, functools.partial(failed, claim, policy), self._name)
        try:
            value: Any = None
            found = await play_async(store, entered(claim, policy, elapsed, self._prober(args, kwargs)))
            if found.move is Move.RUN:
                run.hold(found)
                value = self._function(*args, **kwargs)
                while inspect.isawaitable(value):  # a decorator between may have made one more
                    value = await value
                value = self._finished(value)
        except BaseException as error:
            await run.settle_async(error)
            raise
        if found.move is not Move.RUN:
            return self._stored(claim, found)
        try:
            await play_async(store, finished(claim, self._once.codec, value))
        finally:
            run.end()
        returned: T = value
        return returned

    def __reduce__(self) -> str:
        """Pickle by name, as a function is, so that a process pool can call it."""
        return self._function.__qualname__

    def inspect(self, key: object) -> Inspection | None:
        """The receipt of a key, or None."""
        rows = self._once.store.change(ReceiptChange(Act.FIND, self._who(key)))
        if not rows:
            return None
        _, state, result, _, left_ms, created_ms, attempt, _ = rows[0]
        is_unknown = state == "running" and int(left_ms or 0) <= 0
        value = self._once.codec.loads(result) if state == DONE and result is not None else result
        at = datetime.fromtimestamp(int(created_ms) / 1_000, UTC)
        return Inspection(self._who(key).key, "unknown" if is_unknown else state, value, at, attempt or 1)

    def resolve(self, key: object, result: Any = None) -> None:
        """Record that a call whose outcome is unknown took effect. Every retry gets this result."""
        text = text_of(self._once.codec, result)
        change = ReceiptChange(Act.RESOLVE, self._who(key), result=text, keep_ms=self._terms.keep_ms)
        store = self._once.store
        if store.change(change):
            return
        rows = store.change(ReceiptChange(Act.FIND, change.who))
        if not rows or (rows[0][1], rows[0][2]) != (DONE, text):  # else the answer to the first attempt was lost
            raise OnceError(f"The key {str(key)!r} has no unknown outcome: there is nothing to resolve.")

    def forget(self, key: object) -> bool:
        """Delete the receipt of a key, so that the next call runs. Returns whether there was one."""
        store, who = self._once.store, self._who(key)
        rows = store.change(ReceiptChange(Act.FIND, who))  # a statement that is repeated finds nothing more to delete
        return bool(store.change(ReceiptChange(Act.FORGET, who)) or rows)

    def _who(self, key: object) -> OnceIdentity:
        return identity(self._scope, key)

    def _claim(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OnceClaim:
        terms = self._terms
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = list(bound.arguments.items())[1 if self._is_method else 0 :]
        compared = dict(named) if terms.compare is None else terms.compare(*args, **kwargs)
        who = self._who(self._key_of(args, kwargs))
        return OnceClaim(who, fingerprint(compared), uuid.uuid4().hex, terms.keep_ms, terms.lease_ms)

    def _prober(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        ask = self._terms.policy.ask
        return lambda: None if ask is None else ask(*args, **kwargs)

    def _finished(self, value: Any) -> Any:
        """What the function returned. Something that has still to run is no result.

        If it is the function itself that has not begun, nothing has happened. Anything else may have had an effect.
        """
        is_generator = inspect.isgenerator(value) or inspect.isasyncgen(value)
        is_future = hasattr(value, "add_done_callback") and not isinstance(value, type)
        if not is_generator and not is_future and not inspect.isawaitable(value):
            return value
        has_begun, kind = _has_begun(value), type(value).__qualname__
        if not has_begun and not inspect.isasyncgen(value):
            value.close()  # it is never awaited, and need not warn of that
        if not has_begun and _code_of(value) is self._code:
            raise TypeError(
                f"{self._name} returned a {kind}, which was not run: put @store.once directly above an async def "
                "function, or return a value."
            )
        raise UnfinishedError(
            f"{self._name} returned a {kind}, which has still to run, so its outcome is unknown: wait for it inside "
            "the function, and return a value."
        )

    def _stored(self, claim: OnceClaim, found: FoundReceipt) -> T:
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
        return await self._call_async(args, kwargs)


def decorate(once: Once, function: Callable[P, T], terms: OnceTerms) -> OnceFunction[P, T]:
    """The wrapper of a function or coroutine function."""
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise InvalidKey(f"Put @store.once below @{kind}, so that it gets the function itself.")
    if not callable(function):
        raise InvalidKey(f"@store.once needs a function, not {function!r}.")
    if is_generator_function(function):
        raise InvalidKey(
            f"{_name_of(function)} is a generator function: its values come one by one, and a receipt has one result. "
            "Return a list."
        )
    if is_async(function):
        return OnceCoroutineFunction(once, function, terms)
    if is_async(terms.policy.ask) and not is_async(inspect.unwrap(function)):
        raise InvalidKey(f"ask= must not be a coroutine function: {_name_of(function)} is none, and cannot await it.")
    return OnceFunction(once, function, terms)


def _has_begun(value: Any) -> bool:
    """Whether a coroutine, a generator, or another object that can be awaited may have begun."""
    if inspect.iscoroutine(value):
        return inspect.getcoroutinestate(value) != inspect.CORO_CREATED
    if inspect.isgenerator(value):
        return inspect.getgeneratorstate(value) != inspect.GEN_CREATED
    return not inspect.isasyncgen(value)


def _code_of(value: Any) -> CodeType | None:
    """The code of the function that made a coroutine or generator."""
    return next((code for name in ("cr_code", "gi_code", "ag_code") if (code := getattr(value, name, None))), None)


_VALUES = (str, bytes, int, float, bool, Decimal, uuid.UUID, date, datetime)
"""Types whose equal values do the same; of any other type only the same object does."""


def _parts_of(function: Any) -> list[Any]:
    """What makes a function: its code, and what its defaults and variables hold now, also in functions inside it."""
    found: list[Any] = []
    seen: list[FunctionType] = []
    left = [function]
    for value in left:  # which grows
        if type(value) is tuple:
            found += (tuple, len(value))
            left += value
        elif type(value) is frozenset and all(type(one) in _VALUES for one in value):
            found.append({(type(one), one) for one in value})
        elif isinstance(value, MethodType):
            found.append(MethodType)
            left += (value.__self__, value.__func__)
        elif isinstance(value, FunctionType):
            if value not in seen:
                seen.append(value)
                left += (value.__defaults__ or (), tuple((value.__kwdefaults__ or {}).items()), *_contents(value))
            found += (value.__code__, seen.index(value))
        else:
            found.append(value)
    return found


def _contents(function: FunctionType) -> Iterator[Any]:
    """What the variables of a function hold.

    While it is decorated, its own name and the class around it are not assigned yet. Then they will be its own; another
    variable that is not assigned yet is like no other.
    """
    own = {"__class__", *function.__qualname__.rpartition("<locals>.")[2].split(".")}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield cell.cell_contents
        except ValueError:
            yield function if name in own else object()


def _is_same(one: Any, other: Any) -> bool:
    """Whether two parts of functions are the same."""
    return one is other or (type(one) is type(other) and type(one) in (*_VALUES, set) and bool(one == other))


def _is_alike(parts: list[Any], others: list[Any]) -> bool:
    return len(parts) == len(others) and all(map(_is_same, parts, others))


def _name_of(function: Any) -> str:
    """The module and the name of a function; empty for an object without a name."""
    name = getattr(function, "__qualname__", "")
    return f"{_home(function.__module__)}.{name}" if name else ""


def _scope_of(function: Any, known: dict[str, tuple[Any, list[Any]]]) -> str:
    """The scope of a function that is given none: its module and its name.

    `known` are functions by their names, with their parts when they were first seen.

    A lambda has no name, and a function inside another one shares its name with those that were made with other
    variables. They would share receipts too.
    """
    name = _name_of(function)
    if not name:
        raise InvalidKey(f"A {type(function).__qualname__} has no name of its own: pass scope=.")
    if name.endswith("<lambda>"):
        raise InvalidKey(f"{name} has no name of its own: pass scope=, or write it with def.")
    holder = getattr(inspect.unwrap(function), "__self__", None)
    if holder is not None and not isinstance(holder, type | ModuleType):
        raise InvalidKey(f"{name} is a method of one object, and would share receipts with others: pass scope=.")
    if "<locals>" in name:
        parts = _parts_of(function)
        first, its = known.setdefault(name, (function, parts))
        if first is not function and not _is_alike(its, parts):
            raise InvalidKey(
                f"Two functions are called {name} and would share receipts: pass a scope= that tells them apart."
            )
    return name


def _is_method(function: Any, signature: inspect.Signature) -> bool:
    """Whether a function is written in a class and gets the object or the class as its first argument."""
    first = next(iter(signature.parameters), "")
    place = getattr(function, "__qualname__", "").rpartition(".")[0]
    return first in ("self", "cls") and place != "" and not place.endswith("<locals>")


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
