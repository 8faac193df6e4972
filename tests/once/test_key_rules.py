"""What is a key and a scope on each door, which options are refused, and that every error survives a process."""

from __future__ import annotations

import concurrent.futures
import copy
import inspect
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from semel import once
from semel.once import InvalidKey, Once, Outbox, calls, errors
from tests.once.key_values import KEYS, NO_KEYS

ran: list[str] = []


@pytest.fixture
def store() -> Iterator[Once]:
    """An empty store, and no effects yet."""
    ran.clear()
    found = Once.memory()
    yield found
    found.close()


def charge(order: object) -> str:
    """The key that it was run with."""
    ran.append(once.current_key())
    return ran[-1]


def by_function(value: object, folder: Path) -> str:
    """The key of a function is what another function returns."""
    with closing(Once.memory()) as found:
        return found.once(key=lambda order: value, compare=lambda order: 1)(charge)(7)


def by_parameter(value: object, folder: Path) -> str:
    """It is an argument."""
    with closing(Once.memory()) as found:
        return found.once(key="order", compare=lambda order: 1)(charge)(value)


def by_attribute(value: object, folder: Path) -> str:
    """It is a text with an attribute of an argument."""
    with closing(Once.memory()) as found:
        return found.once(key="{order.id}", compare=lambda order: 1)(charge)(SimpleNamespace(id=value))


def by_scope(value: object, folder: Path) -> str:
    """The scope of a function."""
    with closing(Once.memory()) as found:
        return found.once(key="order", scope=value)(charge)(7)


def by_transaction(value: object, folder: Path) -> str:
    """The key of a block."""
    return str(_block(folder, key=value, scope="shop").key)


def by_transaction_scope(value: object, folder: Path) -> str:
    """The scope of a block."""
    return str(_block(folder, key="k", scope=value).scope)


def _block(folder: Path, key: Any, scope: Any) -> Any:
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        once.migrate(connection)
        with connection, once.transaction(connection, key, scope=scope) as attempt:
            ran.append("block")
        return attempt


def by_outbox(value: object, folder: Path) -> str:
    """The key of a message."""
    with closing(Outbox(folder / "outbox.db")) as box:
        found = box.post("http://127.0.0.1:1/charges", json=7, key=value)
        ran.append("message")
        return found.key


DOORS: dict[str, Callable[[Any, Path], str]] = {
    "function": by_function,
    "parameter": by_parameter,
    "attribute": by_attribute,
    "scope": by_scope,
    "transaction": by_transaction,
    "transaction's scope": by_transaction_scope,
    "outbox": by_outbox,
}
MEANS_NONE = {"scope", "transaction's scope", "outbox"}
"""Where None is not given at all."""


@pytest.mark.parametrize("value", KEYS)
@pytest.mark.parametrize("door", DOORS)
def test_a_text_a_number_and_a_uuid_are_keys(door: str, value: str, tmp_path: Path) -> None:
    given, text = KEYS[value]
    assert DOORS[door](given, tmp_path) == ("7" if door == "scope" else text)


@pytest.mark.parametrize("value", NO_KEYS)
@pytest.mark.parametrize("door", DOORS)
def test_anything_else_is_refused_and_runs_nothing(door: str, value: str, tmp_path: Path) -> None:
    if value == "None" and door in MEANS_NONE:
        return
    ran.clear()
    with pytest.raises(InvalidKey) as refused:
        DOORS[door](NO_KEYS[value](), tmp_path)
    assert ran == []
    if value == "an object":
        assert "`.id`" in str(refused.value)


def test_a_key_is_a_text_with_parameters(store: Once) -> None:
    order = SimpleNamespace(id=7, customer=SimpleNamespace(id="c"))

    def pay(order: Any, *, step: str = "first") -> str:
        return once.current_key()

    keys = {
        "charge:{order.id}": "charge:7",
        "{order.customer.id}:{step}": "c:first",
        "step": "first",
        "{{{step}}}": "{first}",
    }
    for number, (key, text) in enumerate(keys.items()):
        assert store.once(key=key, scope=f"s{number}", compare=lambda *_, **__: 1)(pay)(order) == text
    for wrong in (
        "charge",
        "charge:{id}",
        "charge:{}",
        "charge:{0}",
        "{order.id:>5}",
        "{order!r}",
        "{order.id",
        "{order[id]}",
        "",
        "{step",
    ):
        with pytest.raises(InvalidKey, match="key="):
            store.once(key=wrong, scope="s")(pay)
    with pytest.raises(AttributeError, match="number"):
        store.once(key="{order.number}", scope="s")(pay)(order)


async def _key(order: object) -> str:
    return "k"


OPTIONS: dict[str, dict[str, Any]] = {
    "on_crash, another case": {"on_crash": "Refuse"},
    "on_crash, another word": {"on_crash": "never"},
    "on_crash, none": {"on_crash": None},
    "on_crash, true": {"on_crash": True},
    "in_flight, another case": {"in_flight": "Wait"},
    "in_flight, another word": {"in_flight": "refuse"},
    "ask alone": {"ask": charge},
    "ask without a function": {"on_crash": "ask"},
    "ask and retry": {"on_crash": "retry", "ask": charge},
    "remember, a class": {"remember": ValueError},
    "remember, a list": {"remember": [ValueError]},
    "releases, a text": {"releases": ("ValueError",)},
    "releases, an instance": {"releases": (ValueError(),)},
    "releases, no exception": {"releases": (str,)},
    "unknown, what is no Exception": {"unknown": (KeyboardInterrupt,)},
    "lease, nothing": {"lease": 0},
    "lease, less": {"lease": -1},
    "lease, a word": {"lease": "long"},
    "keep, a word": {"keep": "soon"},
    "keep, less": {"keep": -1},
    "wait, less": {"wait": -1},
    "wait, no unit": {"wait": "10"},
    "key, a coroutine function": {"key": _key},
    "key, a number": {"key": 7},
    "scope, a class": {"scope": Once},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_would_mean_something_else_is_refused_when_it_is_given(store: Once, name: str) -> None:
    with pytest.raises(InvalidKey):
        store.once(**({"key": "order"} | OPTIONS[name]))(charge)


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "InFlight": ("k", 2.5),
    "RememberedError": ("bank.Declined", [1, "card"]),
    "TableMismatch": ("receipts", ("fence",), ("other",)),
    "OutboxFull": (5,),
    "NotInTransaction": (),
}
KINDS = [
    kind for module in (errors, calls) for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, errors.OnceError)
]  # fmt: skip


class OwnError(once.OnceError):
    """One of a user, whose constructor takes names."""

    def __init__(self, key: str, *, code: int) -> None:
        super().__init__(key)
        self.code = code


def made(kind: type[errors.OnceError]) -> errors.OnceError:
    """An error of a class, with a note."""
    error = OwnError("k", code=7) if kind is OwnError else kind(*ARGUMENTS.get(kind.__name__, ("k",)))
    error.add_note("of a test")
    return error


@pytest.mark.parametrize("kind", [*dict.fromkeys(KINDS), OwnError], ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[errors.OnceError]) -> None:
    error = made(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def _raise(number: int) -> None:
    raise made(list(dict.fromkeys(KINDS))[number])


def test_an_error_of_a_process_of_a_pool_arrives() -> None:
    kinds = list(dict.fromkeys(KINDS))
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        for number, call in enumerate([pool.submit(_raise, number) for number in range(len(kinds))]):
            assert type(call.exception(25)) is kinds[number]
