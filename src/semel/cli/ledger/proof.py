"""`semel ledger proof`: all that proves a transaction, in one file that needs no server any more."""

from __future__ import annotations

import re
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
from semel.client.proofs import Trusted, verify_write

_TX_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[A-Za-z0-9+/_-]{22}(?:==)?")


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("tx_id", metavar="TX_ID")
@click.option(
    "-o", "--output", type=ProofFileType(), required=True, metavar="FILE", help="Where to put it; - is stdout."
)
@click.option(
    "--trusted-height",
    type=click.IntRange(min=1),
    metavar="N",
    help="Put the headers in that lead to block N, above or below; without it the block's own hash must be trusted.",
)
@with_retries
@with_json
@with_connection
def proof(
    connection: Connection,
    place: Scope,
    tx_id: str,
    output: Path,
    trusted_height: int | None,
    retries: int,
    as_json: bool,
) -> None:
    """Put a transaction, its proof and the headers up to a trusted block into one file.

    TX_ID is hexadecimal, a UUID or base64. The file is checked before it is written.
    """
    if not _TX_ID.fullmatch(tx_id):
        raise click.UsageError("TX_ID is 16 bytes: in hexadecimal, as a UUID or in base64.")
    ledger = Ledger(connection, retries)
    document = ledger.get(place.named("transactions", tx_id.replace("+", "-").replace("/", "_")))
    if trusted_height is not None:
        add_chain(ledger, place, document, trusted_height)
    anchor, _ = checked(document, place, partial(verify_write, document, None))
    save(output, document)
    if str(output) != STDIN:
        _tell(document, place, anchor, output, as_json)


def _tell(document: Facts, place: Scope, anchor: Trusted, output: Path, as_json: bool) -> None:
    name = f"{anchor.height}:{anchor.hash.hex()}"
    facts = {"file": str(output), "blockHeight": document.get("blockHeight"), "trust": name}
    about = f"{output}: it stands if block {name} of {place} is real"
    say(as_json, facts, printable(about))
