"""Sync rules: which rows a caller sees.

Rules are buckets. A bucket names tables and has filters. A row is in a bucket if its table is one of them and every
filter matches; a caller sees the rows of all buckets. A filter compares one column of the merged row, in the form that
JavaScript prints, because authors write and test these rules in JavaScript.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.json.canonical import Json, JsonError, parse
from semel.surfaces.deltas.limits import MAX_BUCKETS, MAX_FILTERS, MAX_RULES_BYTES

CLAIM = "jwt:"
"""The prefix of a filter's value that is followed by the name of a claim of the caller."""
KEPT_RULES = 64
"""Limit on the versions of rules that are cached in parsed form."""
MAX_VERSION = 2**53 - 1

Claims = Mapping[str, tuple[str, ...]]
"""The claims of a caller's credential, each a list."""
Values = Mapping[str, str]
"""The columns of a row that are present, each as canonical JSON."""
Test = Callable[[str, tuple[str, ...]], bool]

_WHITE_SPACE = "[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]*"
_NUMBER = re.compile(_WHITE_SPACE + r"([+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))")


class SyncFilter(NamedTuple):
    """One condition on one column."""

    column: str
    op: str
    value: str
    """The value as written; for a claim, its name."""
    is_claim: bool
    test: Test


class SyncBucket(NamedTuple):
    """A named set of rows."""

    name: str
    tables: frozenset[str]
    """The tables of the bucket; empty for all tables."""
    filters: tuple[SyncFilter, ...]


class SyncRules(NamedTuple):
    """The sync rules; without buckets every caller sees everything."""

    version: int
    buckets: tuple[SyncBucket, ...]


@lru_cache(maxsize=KEPT_RULES)
def rules_of(raw: bytes) -> SyncRules:
    """The rules of a text, checked; an invalid text is refused with one sentence."""
    if len(raw) > MAX_RULES_BYTES:
        raise _refused(f"Sync rules may have at most {MAX_RULES_BYTES} bytes.")
    try:
        value = parse(raw)
    except JsonError as error:
        raise _refused(str(error)) from None
    if not isinstance(value, dict):
        raise _refused("Sync rules are a JSON object.")
    version = _version(value.get("version"))
    buckets = tuple(_bucket(item, index) for index, item in enumerate(_list(value, "buckets", "The rules")))
    if len(buckets) > MAX_BUCKETS:
        raise _refused(f"There may be at most {MAX_BUCKETS} buckets.")
    if len({bucket.name for bucket in buckets}) != len(buckets):
        raise _refused("Every bucket needs a name of its own.")
    return SyncRules(version, buckets)


def columns_for(rules: SyncRules, table: str) -> tuple[str, ...]:
    """The columns that decide the visibility of a row of this table, in order; empty if no column matters."""
    buckets = _of_table(rules, table)
    if not all(bucket.filters for bucket in buckets):
        return ()  # a bucket without filters shows every row of the table to every caller
    return tuple(sorted({filter_.column for bucket in buckets for filter_ in bucket.filters}))


def sees(rules: SyncRules, claims: Claims, table: str, values: Values | None) -> bool:
    """Whether a caller with these claims sees a row; None is a row that does not exist, which no caller sees.

    Only the values of `columns_for` are needed.
    """
    if values is None:
        return False
    return not rules.buckets or any(_holds(bucket, claims, values) for bucket in _of_table(rules, table))


def text_of(value: str) -> str:
    """The result of JavaScript's `String()` for a value that is given as canonical JSON."""
    if value[0] not in '"[{':
        return value  # null, true, false, and numbers, which both print alike
    # Numbers are parsed as text, because only their text matters here.
    return _printed(json.loads(value, parse_int=str, parse_float=str))


def number_of(text: str) -> float | None:
    """The result of JavaScript's `parseFloat` for a text: the number at its beginning, if there is one."""
    found = _NUMBER.match(text)
    return None if found is None else float(found[1])


def _of_table(rules: SyncRules, table: str) -> list[SyncBucket]:
    return [bucket for bucket in rules.buckets if not bucket.tables or table in bucket.tables]


def _holds(bucket: SyncBucket, claims: Claims, values: Values) -> bool:
    return all(_passes(filter_, claims, values) for filter_ in bucket.filters)


def _passes(filter_: SyncFilter, claims: Claims, values: Values) -> bool:
    value = values.get(filter_.column)
    if value is None:
        return False  # a row without the column matches no comparison
    wanted = claims.get(filter_.value, ()) if filter_.is_claim else (filter_.value,)
    return bool(wanted) and filter_.test(text_of(value), wanted)


def _printed(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join("" if item is None else _printed(item) for item in value)
    if isinstance(value, dict):
        return "[object Object]"
    return "null" if value is None else str(value).lower()


def _is_among(text: str, wanted: tuple[str, ...]) -> bool:
    return text in wanted


def _is_not_among(text: str, wanted: tuple[str, ...]) -> bool:
    return text not in wanted


def _compared(compare: Callable[[Any, Any], bool]) -> Test:
    """Compare with the first of the filter's values: as numbers if both are, otherwise by UTF-16 code units."""

    def test(text: str, wanted: tuple[str, ...]) -> bool:
        left, right = number_of(text), number_of(wanted[0])
        if left is not None and right is not None:
            return compare(left, right)
        return compare(_units(text), _units(wanted[0]))

    return test


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


_TESTS: dict[str, Test] = {
    "eq": _is_among,
    "in": _is_among,
    "neq": _is_not_among,
    "gt": _compared(operator.gt),
    "lt": _compared(operator.lt),
    "gte": _compared(operator.ge),
    "lte": _compared(operator.le),
}


def _bucket(item: Json, index: int) -> SyncBucket:
    here = f"buckets[{index}]"
    if not isinstance(item, dict):
        raise _refused(f"{here} has to be an object.")
    name = _text(item, "name", here)
    tables = _list(item, "tables", here)
    if not all(isinstance(table, str) and table for table in tables):
        raise _refused(f"The tables of {here} have to be strings that are not empty.")
    filters = _list(item, "filters", here)
    if len(filters) > MAX_FILTERS:
        raise _refused(f"{here} may have at most {MAX_FILTERS} filters.")
    return SyncBucket(
        name,
        frozenset(map(str, tables)),
        tuple(_filter(part, f"{here}.filters[{place}]") for place, part in enumerate(filters)),
    )


def _filter(item: Json, here: str) -> SyncFilter:
    if not isinstance(item, dict):
        raise _refused(f"{here} has to be an object.")
    column, op, value = _text(item, "column", here), item.get("op"), _text(item, "value", here)
    test = _TESTS.get(op) if isinstance(op, str) else None
    if test is None or not isinstance(op, str):
        raise _refused(f"The op of {here} has to be one of {', '.join(_TESTS)}.")
    is_claim = value.startswith(CLAIM)
    return SyncFilter(column, op, value.removeprefix(CLAIM), is_claim, test)


def _version(value: Json) -> int:
    # 1.0 is the whole number 1, as in JavaScript.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_VERSION:
        raise _refused("The version of the rules has to be a whole number from 1 on.")
    return value


def _text(item: dict[str, Json], name: str, here: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise _refused(f"{here} needs a {name} that is a string and not empty.")
    return value


def _list(item: dict[str, Json], name: str, here: str) -> list[Json]:
    value = item.get(name)
    if not isinstance(value, list):
        raise _refused(f"{here} needs an array {name!r}.")
    return value


def _refused(message: str) -> Refused:
    return Refused("deltas:VALIDATION_ERROR", message, own_status=400)
