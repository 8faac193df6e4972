"""The operations of a transaction, from options in their order, or from lines of a file."""

from __future__ import annotations

import functools
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from semel.cli.ledger.asking import Facts
from semel.cli.streams.source import STDIN, open_source, read_lines, read_whole

MAX_U64 = 2**64 - 1
_ORDER = f"{__name__}.order"
_CHECKS = ("if_absent", "if_exists", "if_version", "if_value")


class OrderedCommand(click.Command):
    """A command that knows the order of its options, repeated ones too: a later operation sees the earlier ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The values as always; the order of their names is kept in the context."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        ctx.meta[_ORDER] = [param.name for param in order]
        return super().parse_args(ctx, args)


def with_operations(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that are operations; the command gets these as `operations`, as a server takes them."""
    number = click.IntRange(0, MAX_U64)

    @click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set an entity.")
    @click.option(
        "--set-file",
        "set_files",
        multiple=True,
        metavar="KEY=FILE",
        help="Set an entity to the content of a file; - is stdin.",
    )
    @click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Delete an entity.")
    @click.option(
        "--relate",
        "relates",
        nargs=3,
        multiple=True,
        metavar="RESOURCE RELATION SUBJECT",
        help="Create a relationship.",
    )
    @click.option(
        "--unrelate",
        "unrelates",
        nargs=3,
        multiple=True,
        metavar="RESOURCE RELATION SUBJECT",
        help="Delete a relationship.",
    )
    @click.option("--if-absent", count=True, help="Condition of the preceding --set: the key does not exist.")
    @click.option("--if-exists", count=True, help="Condition of the preceding --set: the key exists.")
    @click.option(
        "--if-version",
        multiple=True,
        type=number,
        metavar="N",
        help="Condition of the preceding --set: the key has version N.",
    )
    @click.option(
        "--if-value", multiple=True, metavar="VALUE", help="Condition of the preceding --set: the key has this value."
    )
    @click.option(
        "--expires",
        multiple=True,
        type=number,
        metavar="UNIX",
        help="Expiry of the entity of the preceding --set, in seconds since 1970.",
    )
    @functools.wraps(command)
    def ordered(*args: Any, **options: Any) -> None:
        given = _Given({name: options.pop(name) for name in (*_KINDS, *_CHECKS, "expires")})
        for name in click.get_current_context().meta[_ORDER]:
            given.take(name)
        command(*args, operations=given.operations, **options)

    return ordered


class _Given:
    """Takes one option after the other; a condition belongs to the set before it."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = {name: iter(value) for name, value in values.items() if not isinstance(value, int)}
        self.operations: list[Facts] = []

    def take(self, name: str | None) -> None:
        if name in _KINDS:
            self.operations.append(_KINDS[name](next(self._values[name])))
        elif name in _CHECKS:
            self._last_set(name)["condition"] = self._condition(name)
        elif name == "expires":
            self._last_set(name)["expiresAt"] = str(next(self._values[name]))

    def _last_set(self, name: str) -> Facts:
        last = self.operations[-1].get("setEntity") if self.operations else None
        option = f"--{name.replace('_', '-')}"
        if not isinstance(last, dict):
            raise click.UsageError(f"{option} belongs to a set: put it behind --set or --set-file.")
        if name in _CHECKS and "condition" in last:
            raise click.UsageError(f"A set has one condition, and {option} is another.")
        return last

    def _condition(self, name: str) -> Facts:
        if name == "if_absent":
            return {"notExists": True}
        if name == "if_exists":
            return {"mustExists": True}
        value = next(self._values[name])
        return {"version": str(value)} if name == "if_version" else {"valueEquals": _base64(os.fsencode(value))}


def _set(pair: str) -> Facts:
    key, value = _split(pair, "--set", "VALUE")
    return {"setEntity": {"key": key, "value": _base64(os.fsencode(value))}}


def _set_file(pair: str) -> Facts:
    key, name = _split(pair, "--set-file", "FILE")
    try:
        if name == STDIN:
            source = open_source(None, None, from_stdin=True)
            content = b"" if source is None else read_whole(source)
        else:
            with Path(name).open("rb") as file:
                content = read_whole(file)
    except OSError as error:
        raise click.ClickException(f"{name} cannot be read: {error.strerror}.") from None
    return {"setEntity": {"key": key, "value": _base64(content)}}


def _split(pair: str, option: str, value: str) -> tuple[str, str]:
    key, equals, rest = pair.partition("=")
    if not equals:
        raise click.UsageError(f"{option} takes KEY={value}.")
    return key, rest


def _delete(key: str) -> Facts:
    return {"deleteEntity": {"key": key}}


def _relate(names: tuple[str, str, str]) -> Facts:
    return {"createRelationship": dict(zip(("resource", "relation", "subject"), names, strict=True))}


def _unrelate(names: tuple[str, str, str]) -> Facts:
    return {"deleteRelationship": dict(zip(("resource", "relation", "subject"), names, strict=True))}


_KINDS: dict[str, Callable[[Any], Facts]] = {
    "sets": _set,
    "set_files": _set_file,
    "deletes": _delete,
    "relates": _relate,
    "unrelates": _unrelate,
}


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


def operation_lines(source: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """The lines of a file that are not empty: their numbers, their text as it is, and how many bytes they took."""
    for number, line in enumerate(read_lines(source), start=1):
        text = line.strip(b" \t\r\n")
        if not text:
            continue
        try:
            is_object = isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise click.ClickException(
                f'Line {number} is not an operation, such as {{"deleteEntity": {{"key": "a"}}}}.'
            )
        yield number, text, len(line)
