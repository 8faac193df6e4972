"""The identity of a call: a scope, a key in it, and the fingerprint of the arguments.

A key or a scope is a `str`, an `int` or a `UUID`. Anything else has a text too, as `User object (7)` or a coroutine's,
which is another one after a restart, or the same one for two customers: so it is refused where it is given.
"""

from __future__ import annotations

import hashlib
import inspect
import string
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from semel.once.codec import canonical
from semel.once.errors import InvalidKey

MAX_KEY = 256
"""Maximum characters of a key and of a scope."""


class OnceIdentity(NamedTuple):
    """A key in its scope."""

    scope: str
    key: str


def identity(scope: object, key: object) -> OnceIdentity:
    """The identity of a call. Raises `InvalidKey` for a key that is empty, too long or not printable.

    A scope separates the keys of tenants; None is one scope of all callers.
    """
    return OnceIdentity("" if scope is None else text_of_id("scope", scope), text_of_id("key", key))


def text_of_id(what: str, value: object) -> str:
    """The text of a key or scope. Raises `InvalidKey` for anything but a str, an int or a UUID."""
    if type(value) is str:
        text = value
    elif isinstance(value, str):
        text = str.__str__(value)  # of an enum it is the value, and not the name
    elif isinstance(value, int) and not isinstance(value, bool):
        text = int.__repr__(value)
    elif isinstance(value, UUID):
        text = str(value)
    else:
        raise InvalidKey(f"The {what} must be a str, an int or a UUID, not {_named(value)}.")
    if not 1 <= len(text) <= MAX_KEY:
        raise InvalidKey(f"The {what} must have 1 to {MAX_KEY} characters, not {len(text)}.")
    if not text.isprintable():
        raise InvalidKey(f"The {what} must have only printable characters: {text!r}.")
    return text


def _named(value: object) -> str:
    """What a value is, and what to pass instead."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if inspect.iscoroutine(value):
        value.close()  # it is never awaited, and need not warn of that
        return "a coroutine: await it first"
    if inspect.isroutine(value) or isinstance(value, partial):
        return "a function: call it"
    return f"an object of the class {type(value).__qualname__}: pass its id, as in `.id`"


def fingerprint(arguments: Any) -> bytes:
    """SHA-256 of the canonical text of the arguments; equal arguments have equal fingerprints."""
    if isinstance(arguments, bytes | bytearray | memoryview):
        return hashlib.sha256(b"\x00" + bytes(arguments)).digest()
    return hashlib.sha256(canonical(arguments)).digest()


KeyReader = Callable[[tuple[Any, ...], dict[str, Any]], object]
"""Gets the arguments of a call and returns its key."""


def key_reader(key: Callable[..., object] | str, signature: inspect.Signature) -> KeyReader:
    """How the key of a call is found: by a function, the name of a parameter, or a text with parameters in braces."""
    if callable(key):
        if is_async(key):
            raise InvalidKey("key= must not be a coroutine function: the key is needed before the call.")
        return lambda args, kwargs: key(*args, **kwargs)
    if not isinstance(key, str):
        raise InvalidKey("key= must be a function, the name of a parameter, or a text as 'charge:{order.id}'.")
    parts = list(_parts(key, signature))

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return "".join(
            part if path is None else text_of_id(f"value of {path} in the key", _value_at(path, bound.arguments))
            for part, path in parts
        )

    return read


def _parts(key: str, signature: inspect.Signature) -> list[tuple[str, str | None]]:
    """The pieces of a text, and the parameters between them. Raises `InvalidKey` for one that no parameter has."""
    found: list[tuple[str, str | None]] = []
    try:
        fields = list(string.Formatter().parse(key if "{" in key or "}" in key else f"{{{key}}}"))
    except ValueError as error:
        raise InvalidKey(f"key={key!r} cannot be read: {error}.") from None
    for text, path, form, conversion in fields:
        found.append((text, None))
        if path is None:
            continue
        name = path.partition(".")[0]
        if form or conversion or not path.replace(".", "_").isidentifier() or name not in signature.parameters:
            raise InvalidKey(
                f"key={key!r}: {path or 'an empty field'} is no parameter of the function, or an attribute of one. "
                f"It has {', '.join(signature.parameters) or 'no parameters'}."
            )
        found.append(("", path))
    if all(path is None for _, path in found):
        raise InvalidKey(f"key={key!r} names no parameter: all calls would have one key.")
    return found


def _value_at(path: str, arguments: dict[str, Any]) -> object:
    name, *attributes = path.split(".")
    value = arguments[name]
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


def is_async(function: object) -> bool:
    """Whether calling this makes a coroutine: also for a partial, and for an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def is_generator_function(function: object) -> bool:
    """Whether calling this makes a generator: also for a partial, and for an object with such a `__call__`."""
    called = (function, getattr(function, "__call__", None))  # noqa: B004
    return any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in called)
