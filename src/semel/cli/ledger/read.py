"""`semel ledger read`: prints a value byte for byte, at any height, optionally with a proof; or lists values."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from semel.cli.connection import CliConnection, CliRefusedError
from semel.cli.ledger.proof import ProofFileType, add_chain, checked, save
from semel.cli.ledger.requests import CliLedger, CliLedgerScope, Facts, ScopeType, content_words, octets_of, show_table
from semel.cli.output import content_out, printable, with_json
from semel.cli.requests import given, with_connection, with_retries
from semel.cli.source import STDIN
from semel.client.proofs import ProvedRead, verify_read

HEAD = ("KEY", "VERSION", "EXPIRES", "VALUE")
HEIGHT = click.IntRange(min=1)


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("key", required=False)
@click.option("--prefix", help="List the entities whose keys start with this, instead of reading one; '' lists all.")
@click.option("--at-height", type=HEIGHT, metavar="N", help="Read the state after block N.")
@click.option("--proof", type=ProofFileType(), metavar="FILE", help="Write the answer with its proof to this file.")
@click.option(
    "--trusted-height",
    type=HEIGHT,
    metavar="N",
    help="With --proof: add the headers that lead to block N.",
)
@with_retries
@with_json
@with_connection
def read(
    connection: CliConnection,
    place: CliLedgerScope,
    key: str | None,
    prefix: str | None,
    at_height: int | None,
    proof: Path | None,
    trusted_height: int | None,
    retries: int,
    as_json: bool,
) -> None:
    """Print the value of an entity, byte for byte. PLACE is ORG or ORG/VAULT.

    The exit code is 1 for a missing key; with --proof its absence is proved. A proof is verified before it is saved: it
    is valid if its block hash is trusted.
    """
    if (key is None) == (prefix is None):
        raise click.UsageError("Give a KEY, or --prefix for a list.")
    if (proof is not None and key is None) or (trusted_height is not None and proof is None):
        raise click.UsageError("--proof needs a KEY, and --trusted-height needs --proof.")
    ledger = CliLedger(connection, retries)
    if key is None:
        _list(ledger, place, given({"prefix": prefix or None, "atHeight": at_height}), as_json)
    elif proof is None:
        _tell(ledger, ledger.get(place.named("entities", key), {"atHeight": at_height}), as_json)
    else:
        found = _proved(ledger, place, key, at_height)
        if trusted_height is not None:
            add_chain(ledger, place, found, trusted_height)
        _, shown = checked(found, place, partial(verify_read, found, key))
        save(proof, found)
        if "value" not in found:
            raise click.ClickException(printable(f"{key} {_absence(shown)}."))
        if str(proof) != STDIN:
            _tell(ledger, found, as_json)


def _list(ledger: CliLedger, place: CliLedgerScope, filters: Facts, as_json: bool) -> None:
    pages = ledger.pages(f"{place.path}/entities", "entities", filters, None)
    if as_json:
        for page in pages:
            for one in page:
                click.echo(json.dumps(one))
        return
    show_table(HEAD, [_row(one) for page in pages for one in page], "No entities match.")


def _row(one: Facts) -> tuple[object, ...]:
    return one.get("key"), one.get("version"), one.get("expiresAt", "never"), content_words(one.get("value"))


def _proved(ledger: CliLedger, place: CliLedgerScope, key: str, at_height: int | None) -> Facts:
    try:
        return ledger.get(place.named("entities", key), {"atHeight": at_height, "proof": "true"})
    except CliRefusedError as error:
        # Absence is an answer too: status 404, with its proof as the body.
        if error.status != 404 or "stateProof" not in error.facts:
            raise
        return dict(error.facts)


def _absence(shown: ProvedRead) -> str:
    """The sentence for a missing key: proved, or only the server's statement."""
    height, entry = shown.header.height, shown.entry
    if entry is None or not shown.is_withheld:
        return f"does not exist after block {height}"
    return f"is there after block {height}, and was not told: it expires at {entry.expires_at}, in seconds since 1970"


def _tell(ledger: CliLedger, facts: Facts, as_json: bool) -> None:
    content = octets_of(facts.get("value"))
    if content is None:
        raise ledger.stranger()
    if as_json:
        click.echo(json.dumps(facts))
        return
    with content_out() as out:
        out.write(content)
