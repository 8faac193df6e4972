"""Types of a job function's parameters as JSON: validated and encoded when submitted, rebuilt when run.

| Python | JSON |
|---|---|
| `None`, `bool`, `int`, `float`, `str`, `Any`, `object` | as it is; `int` also where `float` is wanted |
| `list`, `tuple`, `set`, `frozenset`, `Sequence` | array |
| `dict`, `Mapping` (names are strings), `TypedDict`, dataclass, pydantic model | object |
| `NamedTuple` | object |
| `Enum`, `Literal` | the value |
| `datetime`, `date`, `time`, `UUID`, `Decimal`, `Path` | string |
| `timedelta` | seconds |
| `bytes` | base64 |
| `X \\| Y` | the first type that fits |

`Fault` tells which member does not fit, and no value.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

MAX_LEVELS = 64


class Fault(ValueError):  # noqa: N818 - says what does not fit
    """A value does not fit its type."""


class ParamType(NamedTuple):
    """A type: `encode` makes JSON of a value, `decode` makes the value of JSON. Both raise `Fault`."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class UnknownTypeError(TypeError):
    """A type that this module does not know."""


_TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    UUID: (str, UUID),
    Decimal: (str, Decimal),
    Path: (str, Path),
    bytes: (lambda value: base64.b64encode(value).decode(), lambda text: base64.b64decode(text, validate=True)),
}
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_SETS = (set, frozenset, collections.abc.Set)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def param_type(wanted: Any) -> ParamType:
    """The codec of a type. Raises `UnknownTypeError`."""
    return _TypeReader().read(wanted)


class _TypeReader:
    """Reads types; a type that contains itself is read once."""

    def __init__(self) -> None:
        self._known: dict[Any, ParamType] = {}

    def read(self, wanted: Any) -> ParamType:
        origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
        if origin is typing.Annotated:
            return self.read(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return _union([self.read(one) for one in arguments])
        if origin is typing.Literal:
            return _literal(arguments)
        if origin in (typing.Required, typing.NotRequired):
            return self.read(arguments[0])
        if isinstance(wanted, typing.NewType):
            return self.read(wanted.__supertype__)
        if wanted in (Any, object):
            return ParamType(_json, lambda value: value)
        if wanted is None or wanted is type(None):
            return _scalar("null", lambda value: value is None)
        container = self._container(origin or wanted, arguments)
        return self._class(wanted) if container is None else container

    def _container(self, origin: Any, arguments: tuple[Any, ...]) -> ParamType | None:
        if origin is tuple:
            if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
                return _array(tuple, (list, tuple), self.read(arguments[0] if arguments else Any))
            return _fixed([self.read(one) for one in arguments])
        item = arguments[0] if arguments else Any
        if origin in _LISTS:
            return _array(list, (list, tuple), self.read(item))
        if origin in _SETS:
            return _array(frozenset if origin is frozenset else set, (set, frozenset), self.read(item))
        if origin in _DICTS:
            name, value = arguments or (str, Any)
            if name not in (str, Any):
                raise UnknownTypeError("the names of a mapping must be str")
            return _mapping(self.read(value))
        return None

    def _class(self, wanted: Any) -> ParamType:
        if not isinstance(wanted, type):
            raise UnknownTypeError(f"{wanted!r} has no form in JSON")
        if wanted in _TEXTS:
            return _text(wanted, *_TEXTS[wanted])
        if issubclass(wanted, enum.Enum):
            return _enum(wanted)
        if wanted is timedelta:
            return _timedelta()
        for kind in (bool, int, float, str):
            if wanted is kind:
                return _PLAIN[kind]
        if _is_model(wanted):
            return _model(wanted)
        if (
            dataclasses.is_dataclass(wanted)
            or typing.is_typeddict(wanted)
            or (issubclass(wanted, tuple) and hasattr(wanted, "_fields"))
        ):
            return self._record(wanted)
        raise UnknownTypeError(f"{wanted.__name__} has no form in JSON")

    def _record(self, wanted: type) -> ParamType:
        if wanted in self._known:
            return self._known[wanted]
        fields: dict[str, ParamType] = {}
        needed: set[str] = set()
        record = _Record(wanted, fields, needed)
        self._known[wanted] = ParamType(record.encode, record.decode)
        hints = typing.get_type_hints(wanted)
        if dataclasses.is_dataclass(wanted):
            own = [one for one in dataclasses.fields(wanted) if one.init]
            fields |= {one.name: self.read(hints[one.name]) for one in own}
            nothing = dataclasses.MISSING
            needed |= {one.name for one in own if one.default is nothing and one.default_factory is nothing}
        elif typing.is_typeddict(wanted):
            fields |= {name: self.read(hint) for name, hint in hints.items()}
            needed |= cast(Any, wanted).__required_keys__
        else:
            names = cast(Any, wanted)._fields
            fields |= {name: self.read(hints.get(name, Any)) for name in names}
            needed |= set(names) - set(cast(Any, wanted)._field_defaults)
        return self._known[wanted]


class _Record:
    """A dataclass, a `TypedDict` or a `NamedTuple` as an object."""

    def __init__(self, wanted: type, fields: dict[str, ParamType], needed: set[str]) -> None:
        self._wanted = wanted
        self._fields = fields
        self._needed = needed
        self._is_dict = typing.is_typeddict(wanted)

    def encode(self, value: Any) -> Any:
        if self._is_dict:
            if not isinstance(value, dict):
                raise Fault(f"it is not a {self._wanted.__name__}")
            self._check(value)
            return {name: _within(name, self._fields[name].encode, one) for name, one in value.items()}
        if not isinstance(value, self._wanted):
            raise Fault(f"it is not a {self._wanted.__name__}")
        return {name: _within(name, one.encode, getattr(value, name)) for name, one in self._fields.items()}

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise Fault("it is not an object")
        self._check(value)
        made = {name: _within(name, self._fields[name].decode, one) for name, one in value.items()}
        return made if self._is_dict else self._wanted(**made)

    def _check(self, value: dict[str, Any]) -> None:
        for name in value:
            if name not in self._fields:
                raise Fault(f"it has an unknown member {name[:64]!r}")
        for name in sorted(self._needed):
            if name not in value:
                raise Fault(f"it has no {name}")


def _within(name: str, make: Callable[[Any], Any], value: Any) -> Any:
    try:
        return make(value)
    except Fault as fault:
        raise Fault(f"{name}: {fault}") from None


def _scalar(name: str, fits: Callable[[Any], bool], plain: Callable[[Any], Any] = lambda value: value) -> ParamType:
    def same(value: Any) -> Any:
        if not fits(value):
            raise Fault(f"it is not {name}")
        return plain(value)

    return ParamType(same, same)


_PLAIN = {
    bool: _scalar("a boolean", lambda value: type(value) is bool),
    int: _scalar("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool), int),
    float: _scalar("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: _scalar("a string", lambda value: isinstance(value, str), str.__str__),
}


_JSON_SCALARS = (str, int, float, bool, type(None))


def _json(value: Any, levels: int = MAX_LEVELS) -> Any:
    """A value that is JSON already."""
    if type(value) in _JSON_SCALARS:
        return value
    if levels == 0:
        raise Fault(f"it is nested more than {MAX_LEVELS} levels deep")
    if isinstance(value, list | tuple):
        return [_json(one, levels - 1) for one in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _json(one, levels - 1) for name, one in value.items()}
    raise Fault(f"a {type(value).__name__} is not JSON: give the parameter a type")


def _literal(choices: tuple[Any, ...]) -> ParamType:
    told = ", ".join(map(repr, choices))
    return _scalar(f"one of {told}", lambda value: any(type(value) is type(one) and value == one for one in choices))


def _text(wanted: type, encode: Callable[[Any], str], decode: Callable[[str], Any]) -> ParamType:
    def encoded(value: Any) -> str:
        if not isinstance(value, wanted) or (wanted is date and isinstance(value, datetime)):
            raise Fault(f"it is not a {wanted.__name__}")
        return encode(value)

    def decoded(value: Any) -> Any:
        if not isinstance(value, str):
            raise Fault(f"it is not the text of a {wanted.__name__}")
        try:
            return decode(value)
        except (ValueError, ArithmeticError):
            raise Fault(f"it is not the text of a {wanted.__name__}") from None

    return ParamType(encoded, decoded)


def _enum(wanted: type[enum.Enum]) -> ParamType:
    def encoded(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise Fault(f"it is not a {wanted.__name__}")
        return _json(value.value)

    def decoded(value: Any) -> Any:
        try:
            return wanted(value)
        except (ValueError, TypeError):
            raise Fault(f"it is not the value of a {wanted.__name__}") from None

    return ParamType(encoded, decoded)


def _timedelta() -> ParamType:
    def encoded(value: Any) -> float:
        if not isinstance(value, timedelta):
            raise Fault("it is not a timedelta")
        return value.total_seconds()

    def decoded(value: Any) -> timedelta:
        try:
            return timedelta(seconds=_PLAIN[float].decode(value))
        except OverflowError:
            raise Fault("it is too long for a timedelta") from None

    return ParamType(encoded, decoded)


def _array(make: Callable[[Any], Any], taken: tuple[type, ...], item: ParamType) -> ParamType:
    def encoded(value: Any) -> Any:
        if not isinstance(value, taken):
            raise Fault(f"it is not a {taken[0].__name__}")
        items: Any = value
        return [_within(f"[{place}]", item.encode, one) for place, one in enumerate(items)]

    def decoded(value: Any) -> Any:
        if not isinstance(value, list):
            raise Fault("it is not an array")
        return make(_within(f"[{place}]", item.decode, one) for place, one in enumerate(value))

    return ParamType(encoded, decoded)


def _fixed(items: list[ParamType]) -> ParamType:
    """A tuple of a fixed length."""

    def checked(value: Any, kind: type) -> Any:
        given: Any = value if isinstance(value, kind) else ()
        if not isinstance(value, kind) or len(given) != len(items):
            raise Fault(f"it is not {len(items)} values")
        return enumerate(zip(given, items, strict=True))

    def encoded(value: Any) -> Any:
        return [_within(f"[{place}]", item.encode, one) for place, (one, item) in checked(value, tuple)]

    def decoded(value: Any) -> Any:
        return tuple(_within(f"[{place}]", item.decode, one) for place, (one, item) in checked(value, list))

    return ParamType(encoded, decoded)


def _mapping(item: ParamType) -> ParamType:
    def changed(make: Callable[[Any], Any], value: Any) -> Any:
        if not isinstance(value, collections.abc.Mapping) or not all(isinstance(name, str) for name in value):
            raise Fault("it is not a mapping of names")
        return {name: _within(name[:64], make, one) for name, one in value.items()}

    return ParamType(lambda value: changed(item.encode, value), lambda value: changed(item.decode, value))


def _union(choices: list[ParamType]) -> ParamType:
    def first(makes: list[Callable[[Any], Any]], value: Any) -> Any:
        faults = []
        for make in makes:
            try:
                return make(value)
            except Fault as fault:
                faults.append(str(fault))
        raise Fault(", and ".join(faults))

    encodes, decodes = [one.encode for one in choices], [one.decode for one in choices]
    return ParamType(lambda value: first(encodes, value), lambda value: first(decodes, value))


def _is_model(wanted: type) -> bool:
    """Whether it is a pydantic model; the module that defines one has imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(wanted, pydantic.BaseModel)


def _model(wanted: Any) -> ParamType:
    def encoded(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise Fault(f"it is not a {wanted.__name__}")
        return value.model_dump(mode="json", by_alias=True)

    def decoded(value: Any) -> Any:
        try:
            return wanted.model_validate(value)
        except ValueError as error:  # of pydantic, with one entry for each member
            places = sorted({".".join(map(str, one["loc"])) or "it" for one in cast(Any, error).errors()})
            raise Fault(f"not a {wanted.__name__}: {', '.join(places)}") from None

    return ParamType(encoded, decoded)
