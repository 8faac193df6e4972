"""Transactions of a ledger: operations from options or lines, and the identity and commit of a transaction."""

from __future__ import annotations

import functools
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click

from semel.cli.ledger.requests import CliLedger, CliLedgerScope, Facts, committed_words, hex_of, inner
from semel.cli.output import printable
from semel.cli.source import STDIN, open_source, read_lines, read_whole

MAX_U64 = 2**64 - 1
_ORDER = f"{__name__}.order"
_CHECKS = ("if_absent", "if_exists", "if_version", "if_value")


class OrderedCommand(click.Command):
    """A command that keeps the order of its options, because operations are applied in order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as usual, and store the order of the options in the context."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        ctx.meta[_ORDER] = [param.name for param in order]
        return super().parse_args(ctx, args)


def with_operations(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for operations; the command gets them as `operations` in the server's format."""
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
    """Takes the options in order; a condition belongs to the preceding set."""

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
            raise click.UsageError(f"{option} applies to a set: put it after --set or --set-file.")
        if name in _CHECKS and "condition" in last:
            raise click.UsageError(f"A set can have one condition: {option} is a second one.")
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
    """The non-empty lines of a file: number, original text and size in bytes."""
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


class CliTransactionIdentity(NamedTuple):
    """The identity of a transaction, the same in every retry."""

    client: str
    sequence: int | None
    key: str | None

    @property
    def options(self) -> str:
        """The command-line options of a retry."""
        sequence = [] if self.sequence is None else [f"--sequence {self.sequence}"]
        return " ".join(sequence + ([] if self.key is None else [f"--key {printable(self.key)}"]))

    @property
    def key_words(self) -> str:
        """The key for the end of a sentence."""
        return "" if self.key is None else f"; key {printable(self.key)}"


class CliTransactionOutcome(NamedTuple):
    """The server's answer to a committed transaction."""

    facts: Facts
    is_replayed: bool

    @property
    def success(self) -> Facts | None:
        """The transaction; None if it is committed under another sequence or key than sent."""
        found = self.facts.get("success")
        return found if isinstance(found, dict) else None

    @property
    def words(self) -> str:
        """The start of a sentence about the outcome."""
        if self.success is not None:
            outcome = "Already committed (replayed):" if self.is_replayed else "Committed"
            return f"{outcome} {committed_words(self.success)}"
        error: Any = self.facts.get("error")
        details = (
            ("sequence", inner(error, "assignedSequence")),
            ("height", inner(error, "committedBlockHeight")),
            ("transaction", hex_of(inner(error, "committedTxId", "id"))),
        )
        known = ", ".join(f"{name} {value}" for name, value in details if value not in (None, "?"))
        return printable(f"Already committed as {known}. {inner(error, 'message')}")


class Writer(NamedTuple):
    """Sends transactions to one organization or vault."""

    ledger: CliLedger
    place: CliLedgerScope

    def body(self, identity: CliTransactionIdentity, operations: list[bytes], *, wants_proof: bool = False) -> bytes:
        """The request body of a transaction."""
        members: Facts = {"clientId": identity.client}
        if identity.sequence is not None:
            members["sequence"] = str(identity.sequence)
        if identity.key is not None:
            members["idempotencyKey"] = identity.key
        members["includeTxProof"] = wants_proof
        head = json.dumps(members).encode()[:-1]
        return b'%s, "operations": [%s]}' % (head, b",".join(operations))

    def send(self, body: bytes) -> CliTransactionOutcome:
        """Send a transaction. Returns the answer if it is committed, else raises RequestError."""
        told = self.ledger.send("POST", f"{self.place.path}/writes", body)
        if not isinstance(told.facts.get("success", told.facts.get("error")), dict):
            raise self.ledger.stranger()
        return CliTransactionOutcome(told.facts, told.is_replayed)
