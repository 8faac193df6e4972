"""`semel ledger org`: commands for organizations."""

from __future__ import annotations

import json
import sys

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import with_retries
from semel.cli.jobs.options import given
from semel.cli.keys import fresh_key
from semel.cli.ledger.asking import ROOT, Facts, Ledger
from semel.cli.ledger.places import OrgType, Scope
from semel.cli.ledger.telling import bare, inner, show_table
from semel.cli.output import printable, say, with_json

HEAD = ("ORG", "NAME", "STATUS", "ENTRIES")
STATUSES = ("active", "migrating", "suspended", "deleting")
PREFIX = "ORGANIZATION_STATUS_"
DEFAULT = 100


@click.group()
def org() -> None:
    """Organizations: create, list, show, change and delete them."""


@org.command("create")
@click.argument("name")
@click.option("--key", help="Idempotency-Key, which creates one only; by default a new one is made and printed.")
@with_retries
@with_json
@with_connection
def create(connection: Connection, name: str, key: str | None, retries: int, as_json: bool) -> None:
    """Create an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    told = Ledger(connection, retries).make(ROOT, {"name": name}, key)
    slug = inner(told.facts, "slug", "slug")
    outcome = "Already made (replayed): organization" if told.is_replayed else "Made organization"
    facts = {**told.facts, "key": key, "replayed": told.is_replayed}
    say(as_json, facts, printable(f"{outcome} {slug} ({name}); key {key}"))


@org.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT, show_default=True, help="Limit of items to list.")
@click.option("--all", "is_all", is_flag=True, help="List all, without a limit.")
@with_retries
@with_json
@with_connection
def list_orgs(connection: Connection, limit: int, is_all: bool, retries: int, as_json: bool) -> None:
    """List organizations."""
    pages = Ledger(connection, retries).pages(ROOT, "organizations", {}, None if is_all else limit)
    if as_json:
        for page in pages:
            for one in page:
                click.echo(json.dumps(one))
        return
    show_table(HEAD, [_row(one) for page in pages for one in page], "There are no organizations.")


def _row(one: Facts) -> tuple[object, ...]:
    return inner(one, "slug", "slug"), one.get("name"), bare(one.get("status"), PREFIX), one.get("entries")


@org.command("show")
@click.argument("org", type=OrgType())
@with_retries
@with_json
@with_connection
def show(connection: Connection, org: Scope, retries: int, as_json: bool) -> None:
    """Show an organization and its settings."""
    _tell(Ledger(connection, retries).get(org.path), as_json)


def _tell(facts: Facts, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    lines = (
        ("org", inner(facts, "slug", "slug")),
        ("name", facts.get("name")),
        ("status", bare(facts.get("status"), PREFIX)),
        ("entries", facts.get("entries")),
        ("ttl", f"{facts.get('ttlSeconds')} s"),
        ("eviction", f"every {facts.get('evictionInterval')} entries"),
        ("fence", "on" if facts.get("fence") else "off"),
    )
    for name, words in lines:
        click.echo(printable(f"{name:<9} {words}"))


@org.command("set")
@click.argument("org", type=OrgType())
@click.option(
    "--ttl",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Remember commits and clients for this time, in seconds.",
)
@click.option("--eviction-interval", type=click.IntRange(min=1), metavar="N", help="Log entries between two evictions.")
@click.option(
    "--fence/--no-fence",
    default=None,
    help="Keep the last sequence of every client for ever, or forget it after --ttl.",
)
@click.option("--status", type=click.Choice(STATUSES), help="New status; only an active organization accepts writes.")
@with_retries
@with_json
@with_connection
def change(
    connection: Connection,
    org: Scope,
    ttl: int | None,
    eviction_interval: int | None,
    fence: bool | None,
    status: str | None,
    retries: int,
    as_json: bool,
) -> None:
    """Change settings of an organization, or its status."""
    wanted = {
        "ttlSeconds": None if ttl is None else str(ttl),
        "evictionInterval": None if eviction_interval is None else str(eviction_interval),
        "fence": fence,
        "status": None if status is None else PREFIX + status.upper(),
    }
    if not given(wanted):
        raise click.UsageError("Say what to change: --ttl, --eviction-interval, --fence or --status.")
    _tell(Ledger(connection, retries).send("PATCH", org.path, given(wanted)).facts, as_json)


@org.command("delete")
@click.argument("org", type=OrgType())
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def delete(connection: Connection, org: Scope, dry_run: bool, yes: bool, retries: int, as_json: bool) -> None:
    """Delete an organization: nothing in it can be read or written any more."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: say --yes if standard input is not a terminal.")
    ledger = Ledger(connection, retries)
    facts = {"organization": org.org, "deleted": not dry_run, "dry_run": dry_run}
    if not yes or dry_run:
        one = ledger.get(org.path)
        about = printable(f"organization {org} ({one.get('name')}, {one.get('entries')} entries)")
        if dry_run:
            say(as_json, facts, f"Would delete {about}")
            return
        click.echo(about, err=True)
        click.confirm("Delete it?", abort=True, err=True)
    ledger.send("DELETE", org.path)
    say(as_json, facts, f"Deleted organization {org}")
