"""`semel ledger vault`: commands for vaults, each with a chain of its own."""

from __future__ import annotations

import json
import sys

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import with_retries
from semel.cli.keys import fresh_key
from semel.cli.ledger.asking import Facts, Ledger
from semel.cli.ledger.places import OrgType, Scope, VaultType
from semel.cli.ledger.telling import bare, hex_of, inner, show_table
from semel.cli.output import printable, say, with_json

HEAD = ("VAULT", "STATUS", "HEIGHT", "KEEPS", "STATE ROOT")
PREFIX = "VAULT_STATUS_"
COMPACTED = "BLOCK_RETENTION_MODE_COMPACTED"
DEFAULT = 100


@click.group()
def vault() -> None:
    """Vaults: create, list, show, change and delete them."""


@vault.command("create")
@click.argument("org", type=OrgType())
@click.option(
    "--retain",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the bodies of the last N blocks only, and all headers.",
)
@click.option("--key", help="Idempotency-Key, which creates one only; by default a new one is made and printed.")
@with_retries
@with_json
@with_connection
def create(
    connection: Connection, org: Scope, retain: int | None, key: str | None, retries: int, as_json: bool
) -> None:
    """Create a vault in an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    policy = {} if retain is None else {"retentionPolicy": {"mode": COMPACTED, "retentionBlocks": str(retain)}}
    told = Ledger(connection, retries).make(f"{org.path}/vaults", policy, key)
    place = f"{org}/{inner(told.facts, 'vault', 'slug')}"
    outcome = "Already made (replayed): vault" if told.is_replayed else "Made vault"
    facts = {**told.facts, "place": place, "key": key, "replayed": told.is_replayed}
    say(as_json, facts, printable(f"{outcome} {place}; key {key}"))


@vault.command("list")
@click.argument("org", type=OrgType())
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT, show_default=True, help="Limit of items to list.")
@click.option("--all", "is_all", is_flag=True, help="List all, without a limit.")
@with_retries
@with_json
@with_connection
def list_vaults(connection: Connection, org: Scope, limit: int, is_all: bool, retries: int, as_json: bool) -> None:
    """List the vaults of an organization."""
    pages = Ledger(connection, retries).pages(f"{org.path}/vaults", "vaults", {}, None if is_all else limit)
    if as_json:
        for page in pages:
            for one in page:
                click.echo(json.dumps(one))
        return
    show_table(HEAD, [_row(one) for page in pages for one in page], "There are no vaults.")


def _row(one: Facts) -> tuple[object, ...]:
    place = f"{inner(one, 'organization', 'slug')}/{inner(one, 'vault', 'slug')}"
    root = hex_of(inner(one, "stateRoot", "value"))
    return place, bare(one.get("status"), PREFIX), one.get("height"), _kept(one), root


def _kept(one: Facts) -> str:
    if inner(one, "retentionPolicy", "mode") == COMPACTED:
        return f"the last {inner(one, 'retentionPolicy', 'retentionBlocks')}"
    return "all"


@vault.command("show")
@click.argument("vault", type=VaultType())
@with_retries
@with_json
@with_connection
def show(connection: Connection, vault: Scope, retries: int, as_json: bool) -> None:
    """Show a vault."""
    _tell(Ledger(connection, retries).get(vault.path), as_json)


def _tell(facts: Facts, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, words in zip(HEAD, _row(facts), strict=True):
        click.echo(printable(f"{name.lower():<11} {words}"))


@vault.command("set")
@click.argument("vault", type=VaultType())
@click.option(
    "--status",
    type=click.Choice(("active", "read-only")),
    required=True,
    help="New status; only an active vault accepts writes.",
)
@with_retries
@with_json
@with_connection
def change(connection: Connection, vault: Scope, status: str, retries: int, as_json: bool) -> None:
    """Change the status of a vault."""
    wanted = {"status": PREFIX + status.upper().replace("-", "_")}
    _tell(Ledger(connection, retries).send("PATCH", vault.path, wanted).facts, as_json)


@vault.command("delete")
@click.argument("vault", type=VaultType())
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def delete(connection: Connection, vault: Scope, dry_run: bool, yes: bool, retries: int, as_json: bool) -> None:
    """Delete a vault: nothing in it can be read or written any more."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: say --yes if standard input is not a terminal.")
    ledger = Ledger(connection, retries)
    facts = {"place": str(vault), "deleted": not dry_run, "dry_run": dry_run}
    if not yes or dry_run:
        one = ledger.get(vault.path)
        about = printable(f"vault {vault} ({bare(one.get('status'), PREFIX)}, height {one.get('height')})")
        if dry_run:
            say(as_json, facts, f"Would delete {about}")
            return
        click.echo(about, err=True)
        click.confirm("Delete it?", abort=True, err=True)
    ledger.send("DELETE", vault.path)
    say(as_json, facts, f"Deleted vault {vault}")
