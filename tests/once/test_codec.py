"""Results and fingerprints: every type comes back, and orjson changes no fingerprint."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semel.once import codec
from semel.once.codec import JSON, MAX_DEPTH, canonical
from semel.once.errors import ResultError
from semel.once.identity import fingerprint

ATOMS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
TYPED = st.one_of(ATOMS, st.decimals(allow_nan=False), st.uuids(), st.datetimes(), st.dates(), st.times(), st.binary())
NAMES = st.one_of(st.text(), st.sampled_from(["$semel:decimal", "$semel:object", "$semel:"]))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values with lists, tuples and objects in one another."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(NAMES, inner, max_size=4)
        ),
        max_leaves=12,
    )


@given(nested(TYPED))
def test_a_result_comes_back_with_its_types(value: Any) -> None:
    found = JSON.loads(JSON.dumps(value))
    assert (found, shape(found)) == (value, shape(value))


def shape(value: Any) -> Any:
    """The types of a value: 1, 1.0 and True are equal, and not the same."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [shape(one) for one in value]
    return type(value)


@given(nested(TYPED))
@example([1e16, 1e-7, 5e-324, -0.0])
@example({"a": 2**64, "b": "\x7f\x1f\ud800"})
def test_a_fingerprint_is_the_same_with_orjson_and_without(value: Any) -> None:
    fast = canonical(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_accelerated", lambda: codec._unaccelerated)
        assert canonical(value) == fast


@given(nested(ATOMS))
def test_equal_arguments_have_equal_fingerprints_in_any_order(value: Any) -> None:
    assert fingerprint(turned(value)) == fingerprint(value)


def turned(value: Any) -> Any:
    """The same with the members of objects in the opposite order."""
    if isinstance(value, dict):
        return {name: turned(one) for name, one in reversed(value.items())}
    if isinstance(value, list | tuple):
        return type(value)(turned(one) for one in value)
    return value


def test_a_fingerprint_is_sha256_of_canonical_json() -> None:
    text = json.dumps({"a": [1, 2.5, None], "b": "ü"}, separators=(",", ":"), ensure_ascii=False)
    assert fingerprint({"b": "ü", "a": [1, 2.5, None]}) == hashlib.sha256(text.encode()).digest()


def test_values_that_look_alike_have_different_fingerprints() -> None:
    values: list[Any] = [1, "1", True, "true", None, "", [], {}, (), [1], (1,), 1.5, "1.5", Decimal("1.5")]
    values += [{"$semel:decimal": "1.5"}, {"$semel:object": {"$semel:decimal": "1.5"}}, b"1", date(2026, 1, 1)]
    values += ["2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), time(1), timedelta(1), UUID(int=1), str(UUID(int=1))]
    assert len({fingerprint(one) for one in values}) == len(values)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1: 2}, {"a": {None: 1}}, object(), [{"a": object()}]])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ResultError):
        JSON.dumps(value)
    with pytest.raises(ResultError):
        fingerprint(value)


def test_a_value_that_is_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert JSON.loads(JSON.dumps(value)) == value
    with pytest.raises(ResultError, match="levels"):
        JSON.dumps([value])
    with pytest.raises(ResultError, match="levels"):
        fingerprint({"a": value})
