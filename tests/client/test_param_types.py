"""Types of parameters: what is encoded is rebuilt equal, and what does not fit is refused with its place."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import pydantic
import pytest

from semel.client import AsyncJob, ConfigurationError, InvalidArgumentError, Job, Permanent
from semel.client.jobs.integrity import canonical_bytes
from semel.client.worker.param_types import Fault, UnknownTypeError, param_type
from semel.client.worker.signature import JobSignature
from semel.kernel.json.canonical import parse


class Colour(enum.Enum):
    RED = "red"


class Shade(enum.StrEnum):
    DARK = "dark"


@dataclass
class Address:
    street: str
    number: int = 1


@dataclass
class Order:
    id: str
    at: datetime
    to: Address | None = None
    lines: list[tuple[str, Decimal]] = field(default_factory=list)
    parent: Order | None = None


class Options(TypedDict, total=False):
    fast: bool


class Point(NamedTuple):
    x: int
    y: int = 0


class Model(pydantic.BaseModel):
    name: str
    at: datetime
    price: Decimal = Decimal(1)


Name = NewType("Name", str)
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)

ROUND: list[tuple[Any, Any, Any]] = [
    (int, 10**30, 10**30),
    (float, 1, 1),
    (float, 0.5, 0.5),
    (bool, True, True),
    (str, "grüße", "grüße"),
    (Name, "n", "n"),
    (None, None, None),
    (Any, {"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
    (list[int], [1, 2], [1, 2]),
    (list, [1, "x"], [1, "x"]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[int, str], (1, "x"), [1, "x"]),
    (set[int], {7}, [7]),
    (frozenset[str], frozenset({"a"}), ["a"]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[str, list[date]], {"a": [date(2026, 1, 2)]}, {"a": ["2026-01-02"]}),
    (int | None, None, None),
    (int | str, "x", "x"),
    (Literal["a", 7], 7, 7),
    (Colour, Colour.RED, "red"),
    (Shade, Shade.DARK, "dark"),
    (datetime, NOON, "2026-11-18T12:00:00+00:00"),
    (date, date(2026, 1, 2), "2026-01-02"),
    (time, time(3, 4), "03:04:00"),
    (timedelta, timedelta(seconds=90), 90.0),
    (UUID, UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal, Decimal("1.10"), "1.10"),
    (bytes, b"\x00\xff", "AP8="),
    (Path, Path("a/b"), "a/b"),
    (Address, Address("s"), {"street": "s", "number": 1}),
    (
        Order,
        Order("1", NOON, Address("s", 2), [("tea", Decimal(2))], Order("0", NOON)),
        {
            "id": "1",
            "at": "2026-11-18T12:00:00+00:00",
            "to": {"street": "s", "number": 2},
            "lines": [["tea", "2"]],
            "parent": {"id": "0", "at": "2026-11-18T12:00:00+00:00", "to": None, "lines": [], "parent": None},
        },
    ),
    (Options, {"fast": True}, {"fast": True}),
    (Options, {}, {}),
    (Point, Point(1), {"x": 1, "y": 0}),
    (
        Model,
        Model(name="n", at=NOON, price=Decimal("2.50")),
        {"name": "n", "at": "2026-11-18T12:00:00Z", "price": "2.50"},
    ),
]


@pytest.mark.parametrize(("wanted", "value", "stored"), ROUND, ids=lambda one: str(one)[:40])
def test_a_value_is_stored_as_json_and_rebuilt_equal(wanted: Any, value: Any, stored: Any) -> None:
    kind = param_type(wanted)
    encoded = kind.encode(value)
    assert encoded == stored
    rebuilt = kind.decode(parse(canonical_bytes(encoded)))
    assert rebuilt == value
    assert type(rebuilt) is type(value) or wanted is float


REFUSED: list[tuple[Any, Any, str]] = [
    (int, True, "not an integer"),
    (int, 1.0, "not an integer"),
    (str, 5, "not a string"),
    (bool, 1, "not a boolean"),
    (float, "1", "not a number"),
    (list[int], [1, "x"], r"\[1\]: it is not an integer"),
    (list[int], {1}, "not a list"),
    (tuple[int, str], (1,), "not 2 values"),
    (dict[str, int], {"a": "x"}, "a: it is not an integer"),
    (dict[str, int], {1: 1}, "mapping of names"),
    (Literal["a"], "b", "one of 'a'"),
    (int | None, "x", "not an integer, and it is not null"),
    (Colour, "red", "not a Colour"),
    (date, NOON, "not a date"),
    (Order, Address("s"), "not a Order"),
    (Order, Order("1", NOON, lines=[("tea", 2)]), r"lines: \[0\]: \[1\]: it is not a Decimal"),  # type: ignore[list-item]
    (Options, {"slow": True}, "unknown member 'slow'"),
    (Any, {1, 2}, "give the parameter a type"),
    (Model, {"name": "n"}, "not a Model"),
]


@pytest.mark.parametrize(("wanted", "value", "why"), REFUSED, ids=lambda one: str(one)[:40])
def test_a_value_that_does_not_fit_is_refused_before_it_is_sent(wanted: Any, value: Any, why: str) -> None:
    with pytest.raises(Fault, match=why):
        param_type(wanted).encode(value)


BROKEN: list[tuple[Any, Any, str]] = [
    (int, "5", "not an integer"),
    (datetime, "yesterday", "text of a datetime"),
    (Decimal, "x", "text of a Decimal"),
    (bytes, "?", "text of a bytes"),
    (UUID, 5, "text of a UUID"),
    (Colour, "blue", "value of a Colour"),
    (Address, {"number": 1}, "no street"),
    (Address, {"street": "s", "more": 1}, "unknown member 'more'"),
    (Address, [], "not an object"),
    (Point, {"y": 1}, "no x"),
    (tuple[int, str], [1, 2], r"\[1\]: it is not a string"),
    (timedelta, 1e300, "too long"),
    (Model, {"name": 5}, "at, name"),
]


@pytest.mark.parametrize(("wanted", "stored", "why"), BROKEN, ids=lambda one: str(one)[:40])
def test_params_that_do_not_fit_are_refused_when_they_are_rebuilt(wanted: Any, stored: Any, why: str) -> None:
    with pytest.raises(Fault, match=why):
        param_type(wanted).decode(stored)


@pytest.mark.parametrize("wanted", [complex, dict[int, str], "Order", object()])
def test_a_type_without_a_form_in_json_is_unknown(wanted: Any) -> None:
    with pytest.raises(UnknownTypeError):
        param_type(wanted)


def bill(order: str, address: Address, amount: Decimal = Decimal(1)) -> Order:
    raise NotImplementedError


def test_params_have_what_was_passed_and_no_defaults() -> None:
    signature = JobSignature("bill", bill)
    assert signature.encode(("7", Address("s")), {}) == {"order": "7", "address": {"street": "s", "number": 1}}
    params = signature.encode(("7",), {"address": Address("s"), "amount": Decimal(2)})
    call = signature.call_of(params, _job())
    assert call.kwargs == {"order": "7", "address": Address("s"), "amount": Decimal(2)}


def test_a_submission_that_does_not_fit_says_which_parameter() -> None:
    signature = JobSignature("bill", bill)
    for args, kwargs, why in (
        (("7",), {}, "missing a required argument: 'address'"),
        ((7, Address("s")), {}, "the parameter order does not fit: it is not a string"),
        (("7", Address("s")), {"cents": 5}, "unexpected keyword argument 'cents'"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            signature.encode(args, kwargs)


def test_params_of_another_version_fail_the_job_for_good() -> None:
    signature = JobSignature("bill", bill)
    for params, why in (
        ({"order": "7"}, "no address"),
        ({"order": 7, "address": {"street": "s"}}, "The param order does not fit"),
        ({"order": "7", "address": {"street": "s"}, "cents": 5}, "unknown member 'cents'"),
    ):
        with pytest.raises(Permanent, match=why) as refused:
            signature.call_of(params, _job())
        assert refused.value.code == "invalid_params"


def _job() -> Job:
    return Job.__new__(Job)


def test_the_job_is_passed_by_its_type_and_is_no_param() -> None:
    def first(job: Job, n: int) -> None: ...

    def later(n: int, *, mine: AsyncJob) -> None: ...

    def by_name(job, n):  # type: ignore[no-untyped-def]
        ...

    job = _job()
    for function, name in ((first, "job"), (later, "mine"), (by_name, "job")):
        signature = JobSignature("k", function)
        assert list(signature.public.parameters) == ["n"]
        assert signature.call_of({"n": 1}, job).kwargs == {"n": 1, name: job}


def test_a_function_of_its_job_alone_takes_any_params() -> None:
    def old(job: Job) -> None: ...

    signature = JobSignature("k", old)
    assert signature.call_of({"anything": 1}, _job()).kwargs.keys() == {"job"}
    with pytest.raises(InvalidArgumentError):
        signature.encode((), {"anything": 1})


def test_other_params_by_name_and_positional_ones() -> None:
    def free(first: int, /, **rest: int) -> None: ...

    signature = JobSignature("k", free)
    assert signature.encode((1,), {"a": 2}) == {"first": 1, "a": 2}
    call = signature.call_of({"first": 1, "a": 2}, _job())
    assert (call.args, call.kwargs) == ((1,), {"a": 2})


def test_a_function_that_cannot_be_a_job_is_refused_when_it_is_registered() -> None:
    def many(*orders: str) -> None: ...

    def number(value: complex) -> None: ...

    def twice(job: Job, other: AsyncJob) -> None: ...

    def unknown(value: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821 - what is refused
        ...

    for function, why in (
        (many, r"\*orders has no name"),
        (number, "the parameter value: complex has no form in JSON"),
        (twice, "more than one parameter for its job"),
        (unknown, "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            JobSignature("k", function)
