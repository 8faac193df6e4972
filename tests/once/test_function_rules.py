"""What a function may be, return and be told, and what becomes of its key if it breaks the rule."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from semel import once
from semel.once import Happened, InvalidKey, Once, OutcomeUnknown
from semel.once.units import byte_count, seconds

ran: list[Any] = []
"""What had an effect."""


@pytest.fixture
def store() -> Iterator[Once]:
    """An empty store, and no effects yet."""
    ran.clear()
    found = Once.memory()
    yield found
    found.close()


def told(call: Callable[[], Any]) -> Any:
    """What a call returns, or the name of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error).__name__


async def _an_answer() -> Happened:
    return Happened(5)


def _cut_off(key: str) -> int:
    ran.append(key)
    if len(ran) == 1:
        raise KeyboardInterrupt
    return 9


async def _cut_off_async(key: str) -> int:
    return _cut_off(key)


ANSWERS: dict[str, tuple[Callable[[str], Any], Any, Any]] = {
    "none": (lambda key: None, 9, 9),
    "happened": (lambda key: Happened(5), 5, 5),
    "happened with nothing": (lambda key: Happened(), None, None),
    "the charge itself": (lambda key: {"charge": 1}, "InvalidKey", "InvalidKey"),
    "true": (lambda key: True, "InvalidKey", "InvalidKey"),
    "false": (lambda key: False, "InvalidKey", "InvalidKey"),
    "the class": (lambda key: Happened, "InvalidKey", "InvalidKey"),
    "a coroutine": (lambda key: _an_answer(), "InvalidKey", 5),
}
"""What `ask` does, and what the retry is told: of a function, and of a coroutine function."""


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("is_async", [False, True])
def test_only_none_lets_a_call_run_again_and_only_happened_is_its_result(
    store: Once, name: str, is_async: bool
) -> None:
    ask, *expected = ANSWERS[name]
    options: dict[str, Any] = {"key": "key", "on_crash": "ask", "ask": ask}
    charge: Any = store.once(**options)(_cut_off_async if is_async else _cut_off)

    def call() -> Any:
        return asyncio.run(charge("a")) if is_async else charge("a")

    with suppress(KeyboardInterrupt):
        call()
    answer = expected[is_async]
    assert [told(call), told(call)] == [answer, answer]
    assert len(ran) == (2 if name == "none" else 1)
    found = charge.inspect("a")
    assert found is not None
    assert found.state == ("unknown" if answer == "InvalidKey" else "done")


@pytest.mark.parametrize("ask", [5, "find", _an_answer, functools.partial(_an_answer)])
def test_a_prober_that_a_function_cannot_call_is_refused(store: Once, ask: Any) -> None:
    with pytest.raises(InvalidKey, match="ask"):
        store.once(key="key", on_crash="ask", ask=ask)(_cut_off)


async def mail(key: str) -> str:
    """An effect that has to be awaited."""
    ran.append(key)
    return key


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that passes on what the function returns."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that makes a function of a coroutine function, as those of click and Celery do."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return asyncio.run(function(*args))

    return wrapper


def collected(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that makes a function of a generator function."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return list(function(*args))

    return wrapper


def _lines(key: str) -> Iterator[str]:
    ran.append(key)
    yield key


async def _lines_async(key: str) -> AsyncIterator[str]:
    ran.append(key)
    yield key


class _Lines:
    """An object that is called as a generator function is."""

    def __call__(self, key: str) -> Iterator[str]:
        yield key


def _charge_and_return_mail(key: str) -> Any:
    ran.append("charge")
    return mail(key)


def _charge_and_return_lines(key: str) -> Any:
    ran.append("charge")
    return _lines(key)


async def _return_lines(key: str) -> Any:
    ran.append("charge")
    return _lines(key)


def _return_task(key: str) -> Any:
    return asyncio.ensure_future(mail(key))


def _return_future(key: str) -> Any:
    ran.append("charge")
    return Future[str]()


@pytest.mark.parametrize("function", [_lines, _lines_async, _Lines(), functools.partial(_lines)])
def test_a_generator_function_is_refused_when_it_is_decorated(store: Once, function: Any) -> None:
    with pytest.raises(InvalidKey, match="generator"):
        store.once(key="key", scope="shop")(function)


@pytest.mark.parametrize(
    ("function", "result"),
    [(mail, "a"), (plain(mail), "a"), (functools.partial(mail), "a"), (plain(plain(mail)), "a")],
)
def test_what_makes_a_coroutine_is_awaited_in_async_code(store: Once, function: Any, result: Any) -> None:
    charge: Any = store.once(key="key", scope="shop")(function)

    async def main() -> list[Any]:
        return [await charge("a"), await charge("a")]

    assert asyncio.run(main()) == [result, result]
    assert ran == ["a"]


@pytest.mark.parametrize(("function", "result"), [(blocking(mail), "a"), (collected(_lines), ["a"])])
def test_a_decorator_that_makes_a_value_makes_a_function(store: Once, function: Any, result: Any) -> None:
    charge: Any = store.once(key="key", scope="shop")(function)
    assert [charge("a"), charge("a")] == [result, result]
    assert ran == ["a"]


@pytest.mark.parametrize("function", [plain(mail), plain(_lines), plain(_lines_async)])
def test_what_was_returned_before_it_began_releases_the_key(store: Once, function: Any) -> None:
    charge: Any = store.once(key="key", scope="shop")(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(TypeError, match="was not run") as refused:
                charge("a")
            assert not isinstance(refused.value, once.OnceError)
    assert charge.inspect("a") is None
    assert ran == []


@pytest.mark.parametrize("options", [{}, {"releases": (TypeError, once.OnceError)}, {"remember": (TypeError,)}])
@pytest.mark.parametrize(
    "function", [_charge_and_return_mail, _charge_and_return_lines, _return_lines, _return_task, _return_future]
)
def test_what_was_returned_when_something_had_run_leaves_the_outcome_open(
    store: Once, function: Any, options: dict[str, Any]
) -> None:
    charge: Any = store.once(key="key", **options)(function)

    async def main() -> list[Any]:
        answers = []
        for _ in range(3):
            try:
                answer = charge("a")
                answers.append(await answer if asyncio.iscoroutine(answer) else answer)
            except once.OnceError as error:
                answers.append(type(error))
        await asyncio.sleep(0)
        return answers

    first, *retries = asyncio.run(main())
    assert issubclass(first, once.ResultError)
    assert retries == [OutcomeUnknown] * 2
    assert len(ran) == 1


def _made(store: Once, bank: str, **options: Any) -> Any:
    @store.once(key="order", **options)
    def charge(order: int) -> str:
        ran.append(bank)
        return bank

    return charge


def test_two_functions_of_one_name_do_not_share_receipts(store: Once) -> None:
    with pytest.raises(InvalidKey, match="scope="):
        store.once(key="order")(lambda order: order)
    assert store.once(key="order", scope="charge")(lambda order: order)(7) == 7
    first, again = _made(store, "A"), _made(store, "A")
    assert (first(7), again(7)) == ("A", "A")
    with pytest.raises(InvalidKey, match="scope="):
        _made(store, "B")
    assert _made(store, "B", scope="bank B")(7) == "B"
    assert _made(Once.memory(), "B")(7) == "B"  # as a fixture or an application's factory does
    assert ran == ["A", "B", "B"]


def test_wrappers_without_the_name_of_their_function_do_not_share_receipts(store: Once) -> None:
    def audited(function: Callable[[int], str]) -> Callable[[int], str]:
        def wrapper(order: int) -> str:
            return function(order)

        return wrapper

    store.once(key="order")(audited(str))
    with pytest.raises(InvalidKey, match="scope="):
        store.once(key="order")(audited(repr))


def test_a_function_that_is_decorated_anew_keeps_its_receipts(store: Once) -> None:
    def charge(order: int) -> int:
        ran.append(order)
        return order

    assert [store.once(key="order")(charge)(7) for _ in range(2)] == [7, 7]
    assert ran == [7]


def _over(value: Any) -> Callable[[int], Any]:
    def charge(order: int) -> Any:
        return value, order

    return charge


def _over_default(value: Any) -> Callable[[int], Any]:
    def pay(order: int, value: Any = value) -> Any:
        return value, order

    return _over(pay)


def _over_named_default(value: Any) -> Callable[[int], Any]:
    def pay(order: int, *, value: Any = value) -> Any:
        return value, order

    return _over(pay)


@pytest.mark.parametrize("made", [_over, _over_default, _over_named_default])
@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("eur", "usd"),
        (1, True),
        (1, Decimal(1)),
        ((1, "eur"), (1, "usd")),
        ((1,), (True,)),
        (frozenset({1}), frozenset({True})),
        ({"currency": "eur"}, {"currency": "eur"}),
    ],
)
def test_functions_over_other_values_do_not_share_receipts(store: Once, made: Any, value: Any, other: Any) -> None:
    store.once(key="order")(made(value))
    with pytest.raises(InvalidKey, match="scope="):
        store.once(key="order")(made(other))


@pytest.mark.parametrize("made", [_over, _over_default, _over_named_default])
@pytest.mark.parametrize(
    "value", [lambda: Decimal("3.10"), lambda: (1, ("eur", Decimal(3))), lambda: frozenset({"eur", "usd"}), lambda: ran]
)
def test_functions_over_equal_values_share_receipts(store: Once, made: Any, value: Any) -> None:
    store.once(key="order")(made(value()))
    store.once(key="order")(made(value()))


def _recursive(store: Once) -> Any:
    @store.once(key="order")
    def charge(order: int) -> int:
        return order if order < 1 else charge(order - 1)

    return charge


def _recursive_over_helpers(store: Once) -> Any:
    def even(order: int) -> Any:
        return order == 0 or odd(order - 1)

    def odd(order: int) -> Any:
        return order != 0 and even(order - 1)

    def charge(order: int) -> Any:
        return order if even(order) else charge(order - 1)

    return store.once(key="order")(charge)


def _counter(store: Once) -> Any:
    count = 0

    @store.once(key="order")
    def charge(order: int) -> int:
        nonlocal count
        count += 1
        return order

    return charge


def _method(store: Once) -> Any:
    class Account:
        @store.once(key="order")
        def charge(self, order: int) -> int:
            return order if super().__hash__() and isinstance(self, Account) else 0

    return Account().charge


@pytest.mark.parametrize("factory", [_recursive, _recursive_over_helpers, _counter, _method])
def test_a_factory_may_make_a_function_again(store: Once, factory: Callable[[Once], Any]) -> None:
    assert [factory(store)(0), factory(store)(0)] == [0, 0]


def test_a_function_over_a_variable_that_is_assigned_later_is_like_no_other(store: Once) -> None:
    def made(value: str) -> None:
        @store.once(key="order")
        def charge(order: int) -> Any:
            return rate, order

        rate = value

    made("eur")
    with pytest.raises(InvalidKey, match="scope="):
        made("usd")


class _Client:
    def __init__(self, currency: str) -> None:
        self.currency = currency

    def charge(self, order: int) -> str:
        return self.currency

    @classmethod
    def refund(cls, order: int) -> str:
        return "refunded"


@pytest.mark.parametrize("decorator", [lambda method: method, plain])
def test_methods_of_two_objects_do_not_share_receipts(store: Once, decorator: Any) -> None:
    with pytest.raises(InvalidKey, match="scope="):
        store.once(key="order")(decorator(_Client("eur").charge))
    found = [store.once(key="order", scope=name)(decorator(_Client(name).charge))(7) for name in ("eur", "usd")]
    assert found == ["eur", "usd"]
    assert store.once(key="order")(_Client.refund)(7) == "refunded"


@pytest.mark.parametrize("number", [Decimal("1.5"), Fraction(3, 2), 1.5])
def test_a_duration_may_be_any_real_number(store: Once, number: Any) -> None:
    assert seconds(number) == 1.5
    store.once(key="order", keep=number, lease=number, wait=number)(_over(1))


INVALID_NUMBERS = [
    *(kind(text) for kind in (float, Decimal) for text in ("nan", "inf", "-inf", "-1")),
    Decimal("sNaN"),
    Fraction(-1),
    -(10**400),
    True,
    1j,
]


@pytest.mark.parametrize("number", [*INVALID_NUMBERS, 10**400, Decimal("1e400"), Fraction(10**400)])
def test_a_number_that_is_no_duration_is_refused(number: Any) -> None:
    with pytest.raises(InvalidKey, match="duration"):
        seconds(number)


@pytest.mark.parametrize("number", [*INVALID_NUMBERS, 1.5, Fraction(3, 2), Decimal("1.5")])
def test_a_number_that_is_no_size_is_refused(number: Any) -> None:
    with pytest.raises(InvalidKey, match="size"):
        byte_count(number)


@pytest.mark.parametrize("number", [5, 5.0, Decimal(5), Fraction(5)])
def test_a_size_is_a_whole_number(number: Any) -> None:
    assert repr(byte_count(number)) == "5"


class _Interrupted:
    """A lock during one of whose calls a signal handler raises: after `acquire` has it, or before `release`."""

    def __init__(self, lock: Any, call: str) -> None:
        self._lock, self._call = lock, call

    def acquire(self, *, timeout: float) -> bool:
        found: bool = self._lock.acquire(timeout=timeout)
        self._interrupt("acquire")
        return found

    def release(self) -> None:
        self._interrupt("release")
        self._lock.release()

    def _interrupt(self, call: str) -> None:
        if call == self._call:
            self._call = ""
            raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["acquire", "release"])
def test_an_exception_of_a_signal_handler_leaves_no_lock(
    store: Once, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    charge: Any = store.once(key="order", wait="10ms")(_over("eur"))
    database: Any = store.store.database
    interrupted = _Interrupted(database._lock(), call)
    monkeypatch.setattr(database, "_lock", lambda: interrupted)
    with pytest.raises(KeyboardInterrupt):
        charge(7)
    with ThreadPoolExecutor() as pool:
        assert pool.submit(charge, 7).result() == ("eur", 7)
    assert charge(7) == ("eur", 7)
