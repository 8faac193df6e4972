"""`semel ledger write`: one transaction, or a file of operations as several, each executed once.

The key of each transaction is made of one key and its number, or its sequence counts from the first one. A second run
with the same options commits the missing transactions and duplicates none, within the server's retention (one day by
default).
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import click

from semel.cli.command import RETRIES, Json, Opt, Retries, command
from semel.cli.ledger.places import AnyPlace
from semel.cli.ledger.proof import TRIPLE, TRIPLE_NAMES, ProofFile, checked, save
from semel.cli.output import printable, progress, say
from semel.cli.session import sentence
from semel.cli.source import STDIN, read_lines, read_whole, size_of
from semel.client import Client, OutcomeUnknown
from semel.client.errors import InvalidArgumentError, SemelError, WriteConditionError
from semel.client.ledger.operations import (
    MAX_U64,
    DeleteKey,
    IfAbsent,
    IfExists,
    IfValue,
    IfVersion,
    JsonOperation,
    LedgerOperation,
    Relate,
    SetKey,
    Unrelate,
    operations_text,
    write_body,
)
from semel.client.ledger.place import Place
from semel.client.ledger.values import CommittedWrite
from semel.client.ledger.write_call import fresh_key
from semel.client.proofs import verify_write

NUMBER = click.IntRange(0, MAX_U64)
_ORDER = f"{__name__}.order"
Many = tuple[str, ...]
EXPIRES_HELP = "Expiry of the entity of the preceding --set, in seconds since 1970."
SPLIT_HELP = "With --file: one transaction per N lines, with keys made of KEY or sequences from --sequence on."


class OrderedCommand(click.Command):
    """A command that keeps the order of its options, because operations are applied in order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as usual, and store the order of the options in the context."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        ctx.meta[_ORDER] = [param.name for param in order]
        return super().parse_args(ctx, args)


def _set(pair: str) -> SetKey:
    key, value = _split(pair, "--set", "VALUE")
    return SetKey(key, os.fsencode(value))


def _set_file(pair: str) -> SetKey:
    key, name = _split(pair, "--set-file", "FILE")
    try:
        if name == STDIN:
            return SetKey(key, read_whole(sys.stdin.buffer))
        with Path(name).open("rb") as file:
            return SetKey(key, read_whole(file))
    except OSError as error:
        raise click.ClickException(f"{name} cannot be read: {error.strerror}.") from None


def _split(pair: str, option: str, value: str) -> tuple[str, str]:
    key, equals, rest = pair.partition("=")
    if not equals:
        raise click.UsageError(f"{option} takes KEY={value}.")
    return key, rest


_KINDS: dict[str, Callable[[Any], LedgerOperation]] = {
    "sets": _set,
    "set_files": _set_file,
    "deletes": DeleteKey,
    "relates": lambda names: Relate(*names),
    "unrelates": lambda names: Unrelate(*names),
}
_CONDITIONS: dict[str, Callable[[Any], IfAbsent | IfExists | IfVersion | IfValue]] = {
    "if_absent": lambda _: IfAbsent(),
    "if_exists": lambda _: IfExists(),
    "if_version": IfVersion,
    "if_value": lambda value: IfValue(os.fsencode(value)),
}


def _in_order(options: dict[str, Any]) -> list[LedgerOperation]:
    """The operations in the order of their options; a condition belongs to the preceding set."""
    values = {name: iter(value) for name, value in options.items() if not isinstance(value, bool)}
    found: list[LedgerOperation] = []
    for name in click.get_current_context().meta[_ORDER]:
        if name not in options:
            continue
        value = next(values[name]) if name in values else True
        if name in _KINDS:
            found.append(_KINDS[name](value))
            continue
        last, option = found[-1] if found else None, f"--{name.replace('_', '-')}"
        if not isinstance(last, SetKey):
            raise click.UsageError(f"{option} applies to a set: put it after --set or --set-file.")
        if name == "expires":
            found[-1] = replace(last, expires_at=value)
        elif last.condition is not None:
            raise click.UsageError(f"A set can have one condition: {option} is a second one.")
        else:
            found[-1] = replace(last, condition=_CONDITIONS[name](value))
    return found


class _Identity(NamedTuple):
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

    def of(self, number: int) -> _Identity:
        """That of one of several transactions, counted from 0."""
        key = None if self.key is None else str(uuid.uuid5(uuid.UUID(self.key), str(number + 1)))
        return _Identity(self.client, None if self.sequence is None else self.sequence + number, key)

    def write(self, place: Place, operations: list[LedgerOperation], *, proof: bool = False) -> CommittedWrite:
        """Execute a transaction once."""
        return place.write(operations, client=self.client, sequence=self.sequence, key=self.key, proof=proof)


def _committed_words(done: CommittedWrite) -> str:
    return f"{done.tx_id} at height {done.height}, sequence {done.sequence}"


def _outcome_words(done: CommittedWrite) -> str:
    if done.note is not None:
        where = f"sequence {done.sequence}, height {done.height}, transaction {done.tx_id}"
        return printable(f"Already committed as {where}. {done.note}")
    return f"{'Already committed (replayed):' if done.replayed else 'Committed'} {_committed_words(done)}"


@command(cls=OrderedCommand)
def write(
    client: Client,
    place: AnyPlace,
    client_id: Annotated[str, Opt("Client id of the transaction.", "--client", "ID")],
    sequence: Annotated[
        int | None,
        Opt("Sequence number of the transaction, counted by the client.", metavar="N", type=click.IntRange(1, MAX_U64)),
    ] = None,
    key: Annotated[
        str | None,
        Opt("Idempotency key, a UUID; by default a new one, which is printed, unless --sequence is given."),
    ] = None,
    sets: Annotated[Many, Opt("Set an entity.", "--set", "KEY=VALUE")] = (),
    set_files: Annotated[
        Many, Opt("Set an entity to the content of a file; - is stdin.", "--set-file", "KEY=FILE")
    ] = (),
    deletes: Annotated[Many, Opt("Delete an entity.", "--delete", "KEY")] = (),
    relates: Annotated[Many, Opt("Create a relationship.", "--relate", TRIPLE_NAMES, TRIPLE)] = (),
    unrelates: Annotated[Many, Opt("Delete a relationship.", "--unrelate", TRIPLE_NAMES, TRIPLE)] = (),
    if_absent: Annotated[bool, Opt("Condition of the preceding --set: the key does not exist.")] = False,
    if_exists: Annotated[bool, Opt("Condition of the preceding --set: the key exists.")] = False,
    if_version: Annotated[
        tuple[int, ...], Opt("Condition of the preceding --set: the key has version N.", metavar="N", type=NUMBER)
    ] = (),
    if_value: Annotated[Many, Opt("Condition of the preceding --set: the key has this value.", metavar="VALUE")] = (),
    expires: Annotated[tuple[int, ...], Opt(EXPIRES_HELP, metavar="UNIX", type=NUMBER)] = (),
    file: Annotated[BinaryIO | None, Opt("File with operations as JSON, one per line; - is stdin.")] = None,
    split: Annotated[int | None, Opt(SPLIT_HELP, metavar="N", type=click.IntRange(1))] = None,
    proof: ProofFile = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Execute a transaction exactly once. PLACE is ORG or ORG/VAULT.

    Its operations are applied in order, all or none. After a lost connection or a busy server it is retried with the
    same key and sequence, which the server executes at most once.
    """
    kinds = {"sets": sets, "set_files": set_files, "deletes": deletes, "relates": relates, "unrelates": unrelates}
    checks = {"if_absent": if_absent, "if_exists": if_exists, "if_version": if_version, "if_value": if_value}
    operations = _in_order({**kinds, **checks, "expires": expires})
    if file is None and not operations:
        raise click.UsageError("Give operations: --set, --set-file, --delete, --relate, --unrelate, or --file.")
    if file is not None and operations:
        raise click.UsageError("Give operations as options or with --file, not both.")
    if split is not None and (file is None or proof is not None):
        raise click.UsageError("--split needs --file, and excludes --proof.")
    asked = client.ledger.place(*place)
    identity = _Identity(client_id, sequence, fresh_key() if key is None and sequence is None else key)
    if file is not None and split is not None:
        _import(asked, identity, file, split, as_json)
        return
    if file is not None:
        operations = [operation for _, operation, _ in _operation_lines(file)]
        if not operations:
            raise click.ClickException("The file has no operations in it.")
    done = _written(asked, identity, operations, proof)
    facts = {**done.facts, "key": identity.key, "replayed": done.replayed}
    say(as_json, facts, f"{_outcome_words(done)}{identity.key_words}")


def _written(
    place: Place, identity: _Identity, operations: list[LedgerOperation], proof: Path | None
) -> CommittedWrite:
    try:
        done = identity.write(place, operations, proof=proof is not None)
    except OutcomeUnknown as error:
        advice = f"It may be committed: run this again with {identity.options} to execute it exactly once."
        raise click.ClickException(f"{sentence(error)} {advice}") from error
    except WriteConditionError as error:
        version = error.current_version
        there = "is not there" if version is None else f"is at version {version}"
        raise click.ClickException(f"{sentence(error)} {printable(error.entity_key)} {there}.") from error
    if proof is not None and done.note is not None:
        click.echo("This answer has no proof: get it with `semel ledger proof`.", err=True)
    elif proof is not None:
        document, body = dict(done.facts), write_body(identity.client, None, None, operations_text(operations))
        try:
            checked(document, place.name, partial(verify_write, document, body))
        except click.ClickException as error:
            words = f"{_outcome_words(done)}, by the server's account. No proof was saved: {error.message}"
            raise click.ClickException(words) from None
        save(proof, document)
    return done


def _operation_lines(source: BinaryIO) -> Iterator[tuple[int, LedgerOperation, int]]:
    """The non-empty lines of a file: number, operation and size in bytes."""
    for number, line in enumerate(read_lines(source), start=1):
        text = line.strip(b" \t\r\n")
        if not text:
            continue
        operation = JsonOperation(text)
        try:
            operations_text([operation])
        except InvalidArgumentError:
            words = f'Line {number} is not an operation, such as {{"deleteEntity": {{"key": "a"}}}}.'
            raise click.ClickException(words) from None
        yield number, operation, len(line)


def _counted(count: int) -> str:
    return f"{count} transaction" if count == 1 else f"{count} transactions"


def _import(place: Place, identity: _Identity, source: BinaryIO, size: int, as_json: bool) -> None:
    """Send transactions one after another, because each may depend on earlier ones; the first refusal ends it."""
    if identity.key is not None:
        try:
            uuid.UUID(identity.key)
        except ValueError:
            words = "With --split the key must be a UUID, from which the keys of the transactions are made."
            raise click.UsageError(words) from None
        click.echo(f"Continue an interrupted run with {identity.options}.", err=True)
    counts = {False: 0, True: 0}
    last: CommittedWrite | None = None

    def advice() -> str:
        count = sum(counts.values())
        again = f"run this again with {identity.options}, and nothing is executed twice"
        return f"{_counted(count)} before it {'is' if count == 1 else 'are'} committed: {again}."

    with progress(size_of(source), "Committing") as advance:
        try:
            for number, operations, length in _portions(source, size):
                own = identity.of(sum(counts.values()))
                try:
                    last = own.write(place, operations)
                except SemelError as error:
                    where = f"Transaction {sum(counts.values()) + 1}, up to line {number}"
                    raise click.ClickException(f"{where}: {sentence(error)} {advice()}") from error
                counts[last.replayed] += 1
                if as_json:
                    told = {**last.facts, "key": own.key, "line": number, "replayed": last.replayed}
                    click.echo(json.dumps(told))
                advance(length)
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped. {advice()}") from None
    if not as_json:
        where = "" if last is None else f"; the last is {_committed_words(last)}"
        words = f"Committed {_counted(counts[False])}, {counts[True]} already committed (replayed){where}"
        click.echo(f"{words}{identity.key_words}")


def _portions(source: BinaryIO, size: int) -> Iterator[tuple[int, list[LedgerOperation], int]]:
    """The operations of each transaction, with the number of its last line and its size in bytes."""
    waiting: list[LedgerOperation] = []
    number = total = 0
    for number, operation, length in _operation_lines(source):
        waiting.append(operation)
        total += length
        if len(waiting) == size:
            yield number, waiting, total
            waiting, total = [], 0
    if waiting:
        yield number, waiting, total
