"""`semel ledger write`: one transaction, or a file of operations as several, each executed once.

The key of each transaction is made of one key and its number, or its sequence counts from the first one. A second run
with the same options commits the missing transactions and duplicates none, within the server's retention (one day by
default).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import click

from semel.cli.command import Json, Opt, OptionSet, Retrying, command
from semel.cli.ledger.places import AnyPlace
from semel.cli.ledger.proof import TRIPLE, TRIPLE_NAMES, ProofFile, checked, save
from semel.cli.output import Said, printable, progress
from semel.cli.session import advised, sentence
from semel.cli.source import read_file, read_lines, size_of
from semel.client import DeleteKey, IfAbsent, IfExists, IfValue, IfVersion, Relate, SetKey, Unrelate
from semel.client.errors import SemelError, WriteConditionError
from semel.client.ledger.operation_file import file_transactions, operation_lines
from semel.client.ledger.operations import MAX_U64, BulkTransaction, LedgerOperation, operations_text, write_body
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
    return SetKey(key, read_file(name))


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


@dataclass(frozen=True)
class OperationOptions(OptionSet):
    """The operations of a transaction; a condition and an expiry belong to the preceding set."""

    sets: Annotated[Many, Opt("Set an entity.", "--set", "KEY=VALUE")] = ()
    set_files: Annotated[
        Many, Opt("Set an entity to the content of a file; - is stdin.", "--set-file", "KEY=FILE")
    ] = ()
    deletes: Annotated[Many, Opt("Delete an entity.", "--delete", "KEY")] = ()
    relates: Annotated[Many, Opt("Create a relationship.", "--relate", TRIPLE_NAMES, TRIPLE)] = ()
    unrelates: Annotated[Many, Opt("Delete a relationship.", "--unrelate", TRIPLE_NAMES, TRIPLE)] = ()
    if_absent: Annotated[bool, Opt("Condition of the preceding --set: the key does not exist.")] = False
    if_exists: Annotated[bool, Opt("Condition of the preceding --set: the key exists.")] = False
    if_version: Annotated[
        tuple[int, ...], Opt("Condition of the preceding --set: the key has version N.", "", "N", NUMBER)
    ] = ()
    if_value: Annotated[Many, Opt("Condition of the preceding --set: the key has this value.", "", "VALUE")] = ()
    expires: Annotated[tuple[int, ...], Opt(EXPIRES_HELP, "", "UNIX", NUMBER)] = ()

    def in_order(self) -> list[LedgerOperation]:
        """The operations in the order of their options."""
        options = vars(self)
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


def _again(first: BulkTransaction) -> str:
    """The options of a retry."""
    sequence = [] if first.sequence is None else [f"--sequence {first.sequence}"]
    return " ".join(sequence + ([] if first.key is None else [f"--key {printable(str(first.key))}"]))


def _key_words(first: BulkTransaction) -> str:
    return "" if first.key is None else f"; key {printable(str(first.key))}"


def _write(place: Place, one: BulkTransaction, *, proof: bool = False) -> CommittedWrite:
    return place.write(one.operations, client=one.client, sequence=one.sequence, key=one.key, proof=proof)


def _committed_words(done: CommittedWrite) -> str:
    return f"{done.tx_id} at height {done.height}, sequence {done.sequence}"


def _outcome_words(done: CommittedWrite) -> str:
    if done.note is not None:
        where = f"sequence {done.sequence}, height {done.height}, transaction {done.tx_id}"
        return printable(f"Already committed as {where}. {done.note}")
    return f"{'Already committed (replayed):' if done.replayed else 'Committed'} {_committed_words(done)}"


@command(cls=OrderedCommand)
def write(
    client: Retrying,
    place: AnyPlace,
    client_id: Annotated[str, Opt("Client id of the transaction.", "--client", "ID")],
    sequence: Annotated[
        int | None,
        Opt("Sequence number of the transaction, counted by the client.", "", "N", click.IntRange(1, MAX_U64)),
    ] = None,
    key: Annotated[
        str | None, Opt("Idempotency key, a UUID; by default a new one, which is printed, unless --sequence is given.")
    ] = None,
    *,
    options: OperationOptions,
    file: Annotated[BinaryIO | None, Opt("File with operations as JSON, one per line; - is stdin.")] = None,
    split: Annotated[int | None, Opt(SPLIT_HELP, "", "N", click.IntRange(1))] = None,
    proof: ProofFile = None,
    as_json: Json = False,
) -> Said | None:
    """Execute a transaction exactly once. PLACE is ORG or ORG/VAULT.

    Its operations are applied in order, all or none. After a lost connection or a busy server it is retried with the
    same key and sequence, which the server executes at most once.
    """
    operations = options.in_order()
    if file is None and not operations:
        raise click.UsageError("Give operations: --set, --set-file, --delete, --relate, --unrelate, or --file.")
    if file is not None and operations:
        raise click.UsageError("Give operations as options or with --file, not both.")
    if split is not None and (file is None or proof is not None):
        raise click.UsageError("--split needs --file, and excludes --proof.")
    asked = client.ledger.place(*place)
    first = BulkTransaction((), client_id, sequence, fresh_key() if key is None and sequence is None else key)
    if file is not None and split is not None:
        _import(asked, first, file, split, as_json)
        return None
    if file is not None:
        operations = [line.operation for line in operation_lines(read_lines(file))]
        if not operations:
            raise click.ClickException("The file has no operations in it.")
    done = _written(asked, replace(first, operations=tuple(operations)), proof)
    facts = {**done.facts, "key": first.key, "replayed": done.replayed}
    return Said(facts, f"{_outcome_words(done)}{_key_words(first)}")


def _written(place: Place, one: BulkTransaction, proof: Path | None) -> CommittedWrite:
    try:
        with advised(f"It may be committed: run this again with {_again(one)} to execute it exactly once."):
            done = _write(place, one, proof=proof is not None)
    except WriteConditionError as error:
        version = error.current_version
        there = "is not there" if version is None else f"is at version {version}"
        raise click.ClickException(f"{sentence(error)} {printable(error.entity_key)} {there}.") from error
    if proof is not None and done.note is not None:
        click.echo("This answer has no proof: get it with `semel ledger proof`.", err=True)
    elif proof is not None:
        document, body = dict(done.facts), write_body(one.client, None, None, operations_text(one.operations))
        try:
            checked(document, place.name, partial(verify_write, document, body))
        except click.ClickException as error:
            words = f"{_outcome_words(done)}, by the server's account. No proof was saved: {error.message}"
            raise click.ClickException(words) from None
        save(proof, document)
    return done


def _counted(count: int) -> str:
    return f"{count} transaction" if count == 1 else f"{count} transactions"


def _import(place: Place, first: BulkTransaction, source: BinaryIO, size: int, as_json: bool) -> None:
    """Send transactions one after another, because each may depend on earlier ones; the first refusal ends it."""
    if first.key is not None:
        try:
            uuid.UUID(str(first.key))
        except ValueError:
            words = "With --split the key must be a UUID, from which the keys of the transactions are made."
            raise click.UsageError(words) from None
        click.echo(f"Continue an interrupted run with {_again(first)}.", err=True)
    counts = {False: 0, True: 0}
    last: CommittedWrite | None = None

    def advice() -> str:
        count = sum(counts.values())
        again = f"run this again with {_again(first)}, and nothing is executed twice"
        return f"{_counted(count)} before it {'is' if count == 1 else 'are'} committed: {again}."

    with progress(size_of(source), "Committing") as advance:
        try:
            for line, length, one in file_transactions(read_lines(source), size, first):
                try:
                    last = _write(place, one)
                except SemelError as error:
                    where = f"Transaction {sum(counts.values()) + 1}, up to line {line}"
                    raise click.ClickException(f"{where}: {sentence(error)} {advice()}") from error
                counts[last.replayed] += 1
                if as_json:
                    click.echo(json.dumps({**last.facts, "key": one.key, "line": line, "replayed": last.replayed}))
                advance(length)
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped. {advice()}") from None
    if not as_json:
        where = "" if last is None else f"; the last is {_committed_words(last)}"
        words = f"Committed {_counted(counts[False])}, {counts[True]} already committed (replayed){where}"
        click.echo(f"{words}{_key_words(first)}")
