"""`semel ledger write`: one transaction, or a file of operations as several, each executed once.

The key of each transaction is made of one key and its number, or its sequence counts from the first one. A second run
with the same options commits the missing transactions and duplicates none, within the server's retention (one day by
default).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

import click

from semel.cli.connection import CliConnection, CliRefusedError, RequestError
from semel.cli.ledger.proof import ProofFileType, checked, save
from semel.cli.ledger.requests import CliLedger, CliLedgerScope, Facts, ScopeType, committed_words
from semel.cli.ledger.transactions import (
    MAX_U64,
    CliTransactionIdentity,
    CliTransactionOutcome,
    OrderedCommand,
    Writer,
    operation_lines,
    with_operations,
)
from semel.cli.output import printable, progress, say, with_json
from semel.cli.requests import fresh_key, with_connection, with_retries
from semel.cli.source import size_of
from semel.client.proofs import verify_write


def read_one(source: BinaryIO) -> list[bytes]:
    """All operations of a file, for one transaction."""
    texts = [text for _, text, _ in operation_lines(source)]
    if not texts:
        raise click.ClickException("The file has no operations in it.")
    return texts


def committed(count: int) -> str:
    """A number of transactions as text."""
    return f"{count} transaction" if count == 1 else f"{count} transactions"


class CliLedgerImport:
    """Sends transactions in sequence, because each may depend on earlier ones; stops at the first refusal."""

    def __init__(self, writer: Writer, identity: CliTransactionIdentity, size: int, as_json: bool) -> None:
        self._writer = writer
        self._identity = identity
        self._size = size
        self._as_json = as_json
        self._base = None if identity.key is None else _uuid(identity.key)
        self._sent = 0
        self.new = 0
        self.known = 0
        self.last: Facts | None = None
        """The last transaction."""

    def run(self, source: BinaryIO) -> Self:
        """Commit every line."""
        if self._base is not None:
            click.echo(f"Continue an interrupted run with {self._identity.options}.", err=True)
        waiting: list[bytes] = []
        number = size = 0
        with progress(size_of(source), "Committing") as advance:
            try:
                for number, text, length in operation_lines(source):
                    waiting.append(text)
                    size += length
                    if len(waiting) == self._size:
                        self._send(waiting, number, size, advance)
                        waiting, size = [], 0
                if waiting:
                    self._send(waiting, number, size, advance)
            except KeyboardInterrupt:
                raise click.ClickException(f"Stopped. {self._advice}") from None
        return self

    def _send(self, texts: list[bytes], line: int, size: int, advance: Callable[[int], None]) -> None:
        identity = self._next()
        try:
            outcome = self._writer.send(self._writer.body(identity, texts))
        except RequestError as error:
            where = f"Transaction {self._sent + 1}, up to line {line}"
            raise click.ClickException(f"{where}: {error.message} {self._advice}") from error
        self._sent += 1
        self.new += not outcome.is_replayed
        self.known += outcome.is_replayed
        self.last = outcome.success or self.last
        if self._as_json:
            click.echo(
                json.dumps({**outcome.facts, "key": identity.key, "line": line, "replayed": outcome.is_replayed})
            )
        advance(size)

    def _next(self) -> CliTransactionIdentity:
        client, sequence, _ = self._identity
        key = None if self._base is None else str(uuid.uuid5(self._base, str(self._sent + 1)))
        return CliTransactionIdentity(client, None if sequence is None else sequence + self._sent, key)

    @property
    def _advice(self) -> str:
        again = f"run this again with {self._identity.options}, and nothing is executed twice"
        return f"{committed(self.new + self.known)} before it {'is' if self._sent == 1 else 'are'} committed: {again}."


def _uuid(key: str) -> uuid.UUID:
    try:
        return uuid.UUID(key)
    except ValueError:
        raise click.UsageError(
            "With --split the key must be a UUID, from which the keys of the transactions are made."
        ) from None


NOTHING = "Give operations: --set, --set-file, --delete, --relate, --unrelate, or --file with one per line."
TWICE = "Give operations as options or with --file, not both."


@click.command(cls=OrderedCommand)
@click.argument("place", type=ScopeType())
@click.option("--client", required=True, metavar="ID", help="Client id of the transaction.")
@click.option(
    "--sequence",
    type=click.IntRange(1, MAX_U64),
    metavar="N",
    help="Sequence number of the transaction, counted by the client.",
)
@click.option(
    "--key", help="Idempotency key, a UUID; by default a new one, which is printed, unless --sequence is given."
)
@with_operations
@click.option("--file", type=click.File("rb"), help="File with operations as JSON, one per line; - is stdin.")
@click.option(
    "--split",
    type=click.IntRange(1),
    metavar="N",
    help="With --file: one transaction per N lines, with keys made of KEY or sequences from --sequence on.",
)
@click.option("--proof", type=ProofFileType(), metavar="FILE", help="Write the answer with its proof to this file.")
@with_retries
@with_json
@with_connection
def write(
    connection: CliConnection,
    place: CliLedgerScope,
    client: str,
    sequence: int | None,
    key: str | None,
    operations: list[Facts],
    file: BinaryIO | None,
    split: int | None,
    proof: Path | None,
    retries: int,
    as_json: bool,
) -> None:
    """Execute a transaction exactly once. PLACE is ORG or ORG/VAULT.

    Its operations are applied in order, all or none. After a lost connection or a busy server it is retried with the
    same key and sequence, which the server executes at most once.
    """
    _check(operations, file, split, proof)
    identity = CliTransactionIdentity(client, sequence, fresh_key() if key is None and sequence is None else key)
    writer = Writer(CliLedger(connection, retries), place)
    if file is not None and split is not None:
        _report_many(CliLedgerImport(writer, identity, split, as_json).run(file), identity, as_json)
        return
    texts = [json.dumps(operation).encode() for operation in operations] if file is None else read_one(file)
    _report(_write(writer, identity, texts, proof), identity, as_json)


def _check(operations: list[Facts], file: BinaryIO | None, split: int | None, proof: Path | None) -> None:
    if file is None and not operations:
        raise click.UsageError(NOTHING)
    if file is not None and operations:
        raise click.UsageError(TWICE)
    if split is not None and (file is None or proof is not None):
        raise click.UsageError("--split needs --file, and excludes --proof.")


def _write(
    writer: Writer, identity: CliTransactionIdentity, texts: list[bytes], proof: Path | None
) -> CliTransactionOutcome:
    body = writer.body(identity, texts, wants_proof=proof is not None)
    try:
        outcome = writer.send(body)
    except RequestError as error:
        if error.is_unsettled:
            advice = f"It may be committed: run this again with {identity.options} to execute it exactly once."
            raise click.ClickException(f"{error.message} {advice}") from error
        raise _advised(error) from error
    if proof is not None:
        _save(writer, outcome, body, proof)
    return outcome


def _save(writer: Writer, outcome: CliTransactionOutcome, body: bytes, proof: Path) -> None:
    """Verify and save the proof. The transaction is committed in any case."""
    if outcome.success is None:
        click.echo("This answer has no proof: get it with `semel ledger proof`.", err=True)
        return
    try:
        checked(outcome.facts, writer.place, partial(verify_write, outcome.facts, body))
    except click.ClickException as error:
        words = f"{outcome.words}, by the server's account. No proof was saved: {error.message}"
        raise click.ClickException(words) from None
    save(proof, outcome.facts)


def _advised(error: RequestError) -> click.ClickException:
    """The error of a failed condition, with its key and current version."""
    found = error.facts.get("error") if isinstance(error, CliRefusedError) else None
    if not isinstance(found, dict) or not found.get("key"):
        return error
    version = found.get("currentVersion")
    there = "is not there" if version is None else f"is at version {version}"
    return click.ClickException(printable(f"{error.message} {found['key']} {there}."))


def _report(outcome: CliTransactionOutcome, identity: CliTransactionIdentity, as_json: bool) -> None:
    facts = {**outcome.facts, "key": identity.key, "replayed": outcome.is_replayed}
    say(as_json, facts, f"{outcome.words}{identity.key_words}")


def _report_many(tally: CliLedgerImport, identity: CliTransactionIdentity, as_json: bool) -> None:
    if as_json:
        return
    last = "" if tally.last is None else f"; the last is {committed_words(tally.last)}"
    counts = f"Committed {committed(tally.new)}, {tally.known} already committed (replayed)"
    click.echo(f"{counts}{last}{identity.key_words}")
