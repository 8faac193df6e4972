"""`semel ledger proof`: write the proof of a transaction or a relationship to a file for offline checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import with_retries
from semel.cli.ledger.asking import Facts, Ledger
from semel.cli.ledger.chains import add_chain
from semel.cli.ledger.places import Scope, ScopeType
from semel.cli.ledger.saving import ProofFileType, checked, save
from semel.cli.output import printable, say, with_json
from semel.cli.streams.source import STDIN
from semel.client.proofs import ProvedRelationship, Trusted, verify_relationship, verify_write

_TX_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[A-Za-z0-9+/_-]{22}(?:==)?")

Triple = tuple[str, str, str]


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("tx_id", metavar="TX_ID", required=False)
@click.option(
    "--relationship",
    type=(str, str, str),
    metavar="RESOURCE RELATION SUBJECT",
    help="Prove that this relationship exists, or that it does not, instead of a transaction.",
)
@click.option(
    "--at-height", type=click.IntRange(min=1), metavar="N", help="With --relationship: its state after block N."
)
@click.option(
    "-o",
    "--output",
    type=ProofFileType(),
    required=True,
    metavar="FILE",
    help="File to write the proof to; - is stdout.",
)
@click.option(
    "--trusted-height",
    type=click.IntRange(min=1),
    metavar="N",
    help="Add the headers that lead to block N; without it a verifier must trust the hash of the block itself.",
)
@with_retries
@with_json
@with_connection
def proof(
    connection: Connection,
    place: Scope,
    tx_id: str | None,
    relationship: Triple | None,
    at_height: int | None,
    output: Path,
    trusted_height: int | None,
    retries: int,
    as_json: bool,
) -> None:
    """Write a transaction, its proof and the headers up to a trusted block to one file.

    TX_ID is hexadecimal, a UUID or base64. With --relationship the file proves that a relationship is there after a
    block, or that it is not. The file is checked before it is written.
    """
    if (tx_id is None) == (relationship is None):
        raise click.UsageError("Give a TX_ID, or --relationship RESOURCE RELATION SUBJECT.")
    if tx_id is not None and not _TX_ID.fullmatch(tx_id):
        raise click.UsageError("TX_ID is 16 bytes: in hexadecimal, as a UUID or in base64.")
    if at_height is not None and relationship is None:
        raise click.UsageError("--at-height goes with --relationship.")
    ledger = Ledger(connection, retries)
    document = _document(ledger, place, tx_id, relationship, at_height)
    if trusted_height is not None:
        add_chain(ledger, place, document, trusted_height)
    check: Callable[[Trusted], object] = partial(verify_write, document, None)
    if relationship is not None:
        check = partial(verify_relationship, document, relationship)
    anchor, shown = checked(document, place, check)
    save(output, document)
    if str(output) != STDIN:
        _tell(document, place, anchor, output, shown, as_json)


def _document(
    ledger: Ledger, place: Scope, tx_id: str | None, relationship: Triple | None, at_height: int | None
) -> Facts:
    if relationship is None:
        assert tx_id is not None
        return ledger.get(place.named("transactions", tx_id.replace("+", "-").replace("/", "_")))
    resource, relation, subject = relationship
    wanted = {"resource": resource, "relation": relation, "subject": subject, "proof": "true", "atHeight": at_height}
    return ledger.get(f"{place.path}/relationships", wanted)


def _tell(document: Facts, place: Scope, anchor: Trusted, output: Path, shown: object, as_json: bool) -> None:
    name = f"{anchor.height}:{anchor.hash.hex()}"
    facts = {"file": str(output), "blockHeight": document.get("blockHeight"), "trust": name}
    about = f"{output}: it stands if block {name} of {place} is real"
    if isinstance(shown, ProvedRelationship):
        is_there = shown.entry is not None
        facts["present"] = is_there
        about += f"; the relationship {'is' if is_there else 'is not'} there after block {shown.header.height}"
    say(as_json, facts, printable(about))
