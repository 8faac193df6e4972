"""Values as typed JSON text and back, for results in receipts and for fingerprints.

Plain JSON stays plain: a `dict`, `list`, `str`, `bool`, `int`, finite `float` and `None` are stored as JSON, so a
result can be read and queried in the user's own database. Every other type is an object with one member whose name
starts with `$semel:`, as in `{"$semel:decimal": "9.90"}`. A plain object with such a member is escaped, so it is never
read as another type.

| type | comes back as |
|---|---|
| `Decimal`, `UUID`, `datetime`, `date`, `time`, `timedelta`, `bytes`, `tuple`, `set`, `frozenset` | itself |
| `Path`, `PurePath`, the classes of `ipaddress` | itself |
| a subclass of one of them, as a driver's own UUID; a `bytearray` | the type of the standard library; `bytes` |
| a row of a database, a named tuple | a `dict` of the columns |
| `Enum`, dataclass, pydantic model | plain data: the value, or a `dict` of the members |
| anything else, NaN, infinity, a member name that is not a `str`, a row with two columns of one name | refused |

Subclasses, enums, dataclasses and models come back as plain data because a receipt may outlive the class.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sized
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Protocol, cast
from uuid import UUID

from semel.once.errors import ResultError

MAX_DEPTH = 64
"""Maximum nesting of lists and objects."""
MARK = "$semel:"


class Codec(Protocol):
    """Converts results to text and back; a user may pass another one."""

    def dumps(self, value: Any) -> str:
        """The text of a value. Raises `ResultError` if it cannot be stored."""

    def loads(self, text: str) -> Any:
        """The value of a text."""


class JsonCodec:
    """The default codec: JSON with types."""

    def dumps(self, value: Any) -> str:
        """JSON text without spaces; members keep their order."""
        if not _is_plain(value, 0):
            return _printed(_plain(value, 0))
        with suppress(TypeError):  # as in `canonical`
            return _accelerated(0)(value).decode()
        return _printed(value)

    def loads(self, text: str) -> Any:
        """The value, with its types."""
        value = json.loads(text)
        return _typed(value) if MARK in text else value


JSON = JsonCodec()


def text_of(codec: Codec, value: Any) -> str | None:
    """The text to store for a result, None for None. Raises `ResultError` if the codec gives none that can be stored.

    It is checked here and not by the database, which would refuse it only when the effect has happened.
    """
    if value is None:
        return None
    try:
        text = codec.dumps(value)
    except ResultError:
        raise
    except Exception as error:
        raise ResultError(str(error)) from error
    if not isinstance(text, str):
        raise ResultError(f"A {type(text).__qualname__} cannot be stored: the codec must return str.")
    if "\0" in text or (not text.isascii() and _SURROGATES.search(text)):
        raise ResultError("A text with a zero character or half a surrogate pair cannot be stored.")
    return text


_SURROGATES = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> bytes:
    """The canonical text of a value, from which its fingerprint is computed; member and set order do not matter."""
    try:
        plain = value if _is_plain(value, 0) else _plain(value, 0)
    except ResultError as error:
        raise ResultError(
            f"The arguments cannot be compared with those of a retry: {error} A function takes compare=, which names "
            "the values to compare."
        ) from None
    if plain is value:
        with suppress(TypeError):  # an integer of more than 64 bits, or a lone surrogate
            return _accelerated(_IN_ORDER)(plain)
    return _printed_in_order(plain).encode("utf-8", "surrogatepass")


_IN_ORDER = 32
"""`orjson.OPT_SORT_KEYS`."""


@lru_cache(maxsize=2)
def _accelerated(option: int) -> Callable[[Any], bytes]:
    """orjson if it is installed. The text is the same, because no number with a fraction gets here."""
    try:
        import orjson  # noqa: PLC0415 - it is optional, and importing once must import the standard library only
    except ImportError:
        return _unaccelerated
    return partial(orjson.dumps, option=option)


def _unaccelerated(_: Any) -> bytes:
    raise TypeError


_printed = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_printed_in_order = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True).encode
_ATOMS = frozenset({str, int, bool, type(None)})


def _is_plain(value: Any, depth: int) -> bool:
    """Whether `_plain` would return an equal value without fractions: most values need no copy."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        if len(value) == 1 and str(next(iter(value))).startswith(MARK):
            return False
        for name, one in value.items():
            if type(name) is not str or (type(one) not in _ATOMS and not _is_plain(one, depth + 1)):
                return False
        return True
    return kind is list and all(type(one) in _ATOMS or _is_plain(one, depth + 1) for one in value)


def _plain(value: Any, depth: int) -> Any:
    """A value made of JSON types only."""
    if value is None or (isinstance(value, bool | str) and not isinstance(value, Enum)):
        return value
    if depth >= MAX_DEPTH:
        raise ResultError(f"A value with more than {MAX_DEPTH} levels cannot be stored.")
    if isinstance(value, Enum):
        return _plain(value.value, depth)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ResultError(f"{value!r} cannot be stored: JSON has no NaN and no infinity.")
        return float(value)
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, Mapping):
        return _object(value, depth)
    columns = None if type(value) in _PRINTERS else _columns(value)
    if columns is not None:
        return _object(columns, depth)
    return _marked(value, depth) or _plain(_members(value), depth)


def _marked(value: Any, depth: int) -> dict[str, Any] | None:
    """The object that stands for a value of another type; a library's own class counts as the one that it extends."""
    for kind in type(value).__mro__:
        if kind in _PRINTERS:
            name, print_value = _PRINTERS[kind]
            return {MARK + name: print_value(value, depth)}
        if kind.__module__ == "ipaddress" and kind.__name__ in _ADDRESSES:
            return {MARK + kind.__name__: cast("Any", kind).__str__(value)}
    return None


def _object(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    for name in value:
        if not isinstance(name, str):
            raise ResultError(f"A member with the name {name!r} cannot be stored: member names must be str.")
    found = {str(name): _plain(one, depth + 1) for name, one in value.items()}
    if len(found) == 1 and next(iter(found)).startswith(MARK):
        return {MARK + "object": found}
    return found


def _columns(value: Any) -> Mapping[Any, Any] | None:
    """A row as its columns: SQLAlchemy's, sqlite3's, asyncpg's, and named tuples; None for anything else."""
    if isinstance(value, type) or is_dataclass(value) or hasattr(value, "model_dump"):
        return None
    found = getattr(value, "_mapping", None)
    if not isinstance(found, Mapping):
        asdict, keys = getattr(value, "_asdict", None), getattr(value, "keys", None)
        if isinstance(value, tuple) and callable(asdict):
            found = asdict()
        elif callable(keys) and hasattr(value, "__getitem__"):
            found = {name: value[name] for name in keys()}
        else:
            return None
    names = list(found)
    if len(set(names)) < max(len(names), len(value) if isinstance(value, Sized) else 0):
        raise ResultError("A row with two columns of one name cannot be stored: give each column a name of its own.")
    return found


def _members(value: Any) -> Any:
    """The members of a dataclass or pydantic model."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump()
    raise ResultError(f"A value of the type {type(value).__qualname__} cannot be stored: return plain data.")


def _sorted(value: set[Any] | frozenset[Any], depth: int) -> list[Any]:
    plain = [_plain(one, depth + 1) for one in value]
    return sorted(plain, key=lambda one: json.dumps(one, sort_keys=True))


def _span(value: timedelta, _: int) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


# The methods are those of the standard library's class: a subclass may print itself for people.
_PRINTERS: dict[type, tuple[str, Callable[[Any, int], Any]]] = {
    Decimal: ("decimal", lambda value, _: Decimal.__str__(value)),
    UUID: ("uuid", lambda value, _: UUID.__str__(value)),
    datetime: ("datetime", lambda value, _: datetime.isoformat(value)),
    date: ("date", lambda value, _: date.isoformat(value)),
    time: ("time", lambda value, _: time.isoformat(value)),
    timedelta: ("timedelta", _span),
    bytes: ("bytes", lambda value, _: base64.b64encode(value).decode()),
    bytearray: ("bytes", lambda value, _: base64.b64encode(value).decode()),
    Path: ("path", lambda value, _: PurePath.__str__(value)),
    PurePath: ("purepath", lambda value, _: PurePath.__str__(value)),
    tuple: ("tuple", lambda value, depth: [_plain(one, depth + 1) for one in value]),
    set: ("set", _sorted),
    frozenset: ("frozenset", _sorted),
}

_ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
"""The classes of `ipaddress`, which is imported only where one of them is read: importing once must load little."""


def _address(name: str, text: str) -> Any:
    return getattr(import_module("ipaddress"), name)(text)


_READERS: dict[str, Callable[[Any], Any]] = {
    MARK + "decimal": Decimal,
    MARK + "uuid": UUID,
    MARK + "datetime": datetime.fromisoformat,
    MARK + "date": date.fromisoformat,
    MARK + "time": time.fromisoformat,
    MARK + "timedelta": lambda parts: timedelta(*parts),
    MARK + "bytes": base64.b64decode,
    MARK + "path": Path,
    MARK + "purepath": PurePath,
    MARK + "tuple": lambda items: tuple(_typed(one) for one in items),
    MARK + "set": lambda items: {_typed(one) for one in items},
    MARK + "frozenset": lambda items: frozenset(_typed(one) for one in items),
    MARK + "object": lambda members: {name: _typed(one) for name, one in members.items()},
    **{MARK + name: partial(_address, name) for name in _ADDRESSES},
}


def _typed(value: Any) -> Any:
    """A JSON value with its types restored."""
    if isinstance(value, list):
        return [_typed(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (name, inner) = next(iter(value.items()))
        if name in _READERS:
            return _READERS[name](inner)
    return {name: _typed(one) for name, one in value.items()}
