"""`semel ledger state`: the last sequence of a client, and the next."""

from __future__ import annotations

import json

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import with_retries
from semel.cli.ledger.asking import Ledger
from semel.cli.ledger.places import Scope, ScopeType
from semel.cli.ledger.telling import hex_of, inner
from semel.cli.output import printable, with_json


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("client")
@with_retries
@with_json
@with_connection
def state(connection: Connection, place: Scope, client: str, retries: int, as_json: bool) -> None:
    """Show the last sequence that a CLIENT committed in a place, and the next."""
    ledger = Ledger(connection, retries)
    facts = ledger.get(place.named("clients", client, "state"))
    last = facts.get("lastCommittedSequence")
    if not isinstance(last, str) or not last.isdecimal():
        raise ledger.stranger()
    if as_json:
        click.echo(json.dumps(facts))
    elif int(last) == 0:
        click.echo(printable(f"{client} is not known in {place}; the next sequence is 1"))
    else:
        tx_id = hex_of(inner(facts, "lastTxId", "id"))
        about = f"transaction {tx_id} at height {facts.get('lastBlockHeight')}"
        click.echo(printable(f"{client} has committed up to {last} in {place} ({about}); the next is {int(last) + 1}"))
