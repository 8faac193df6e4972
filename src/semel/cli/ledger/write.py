"""`semel ledger write`: execute a transaction exactly once, with retries."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import RefusedError, RequestError
from semel.cli.jobs.asking import with_retries
from semel.cli.keys import fresh_key
from semel.cli.ledger.asking import Facts, Ledger
from semel.cli.ledger.importing import Import, committed, read_one
from semel.cli.ledger.operations import MAX_U64, OrderedCommand, with_operations
from semel.cli.ledger.places import Scope, ScopeType
from semel.cli.ledger.saving import ProofFileType, checked, save
from semel.cli.ledger.telling import committed_words
from semel.cli.ledger.transactions import Identity, Outcome, Writer
from semel.cli.output import printable, say, with_json
from semel.client.proofs import verify_write

NOTHING = "Give operations: --set, --set-file, --delete, --relate, --unrelate, or --file with one on each line."
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
@click.option("--key", help="Idempotency key, a UUID; without it and --sequence a new one is made and printed.")
@with_operations
@click.option("--file", type=click.File("rb"), help="File with operations as JSON, one on each line; - is stdin.")
@click.option(
    "--split",
    type=click.IntRange(1),
    metavar="N",
    help="With --file: one transaction for each N lines, with keys derived from KEY or sequences from --sequence on.",
)
@click.option("--proof", type=ProofFileType(), metavar="FILE", help="Write the answer with its proof to this file.")
@with_retries
@with_json
@with_connection
def write(
    connection: Connection,
    place: Scope,
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
    """Carry out a transaction, exactly once. PLACE is ORG or ORG/VAULT.

    Its operations are applied in the given order, all or none. A lost connection or a busy server is
    tried again under the same key and sequence, which the server carries out at most once.
    """
    _check(operations, file, split, proof)
    identity = Identity(client, sequence, fresh_key() if key is None and sequence is None else key)
    writer = Writer(Ledger(connection, retries), place)
    if file is not None and split is not None:
        _report_many(Import(writer, identity, split, as_json).run(file), identity, as_json)
        return
    texts = [json.dumps(operation).encode() for operation in operations] if file is None else read_one(file)
    _report(_write(writer, identity, texts, proof), identity, as_json)


def _check(operations: list[Facts], file: BinaryIO | None, split: int | None, proof: Path | None) -> None:
    if file is None and not operations:
        raise click.UsageError(NOTHING)
    if file is not None and operations:
        raise click.UsageError(TWICE)
    if split is not None and (file is None or proof is not None):
        raise click.UsageError("--split goes with --file, and without --proof.")


def _write(writer: Writer, identity: Identity, texts: list[bytes], proof: Path | None) -> Outcome:
    body = writer.body(identity, texts, wants_proof=proof is not None)
    try:
        outcome = writer.send(body)
    except RequestError as error:
        if error.is_unsettled:
            advice = f"It may be committed: run this again with {identity.options}, and it is carried out once."
            raise click.ClickException(f"{error.message} {advice}") from error
        raise _advised(error) from error
    if proof is not None:
        _save(writer, outcome, body, proof)
    return outcome


def _save(writer: Writer, outcome: Outcome, body: bytes, proof: Path) -> None:
    """Save the proof after a check; the transaction stays committed, whatever the result."""
    if outcome.success is None:
        click.echo("There is no proof in this answer; semel ledger proof gets it.", err=True)
        return
    try:
        checked(outcome.facts, writer.place, partial(verify_write, outcome.facts, body))
    except click.ClickException as error:
        words = f"{outcome.words}, by the server's account. No proof was saved: {error.message}"
        raise click.ClickException(words) from None
    save(proof, outcome.facts)


def _advised(error: RequestError) -> click.ClickException:
    """A failed condition, with its key and the current value."""
    found = error.facts.get("error") if isinstance(error, RefusedError) else None
    if not isinstance(found, dict) or not found.get("key"):
        return error
    version = found.get("currentVersion")
    there = "is not there" if version is None else f"is at version {version}"
    return click.ClickException(printable(f"{error.message} {found['key']} {there}."))


def _report(outcome: Outcome, identity: Identity, as_json: bool) -> None:
    facts = {**outcome.facts, "key": identity.key, "replayed": outcome.is_replayed}
    say(as_json, facts, f"{outcome.words}{identity.key_words}")


def _report_many(tally: Import, identity: Identity, as_json: bool) -> None:
    if as_json:
        return
    last = "" if tally.last is None else f"; the last is {committed_words(tally.last)}"
    counts = f"Committed {committed(tally.new)}, {tally.known} already committed (replayed)"
    click.echo(f"{counts}{last}{identity.key_words}")
