"""`semel ledger org`, `vault` and `state`: organizations, vaults, and the sequence of a client."""

from __future__ import annotations

import json
import sys

import click

from semel.cli.connection import CliConnection
from semel.cli.help import HelpGroup
from semel.cli.ledger.requests import (
    ROOT,
    CliLedger,
    CliLedgerScope,
    Facts,
    OrgType,
    ScopeType,
    VaultType,
    bare,
    hex_of,
    inner,
    show_table,
)
from semel.cli.output import printable, say, with_json
from semel.cli.requests import fresh_key, given, with_connection, with_retries


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("client")
@with_retries
@with_json
@with_connection
def state(connection: CliConnection, place: CliLedgerScope, client: str, retries: int, as_json: bool) -> None:
    """Show the last committed sequence of a CLIENT in PLACE, and the next."""
    ledger = CliLedger(connection, retries)
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


ORG_HEAD = ("ORG", "NAME", "STATUS", "ENTRIES")
STATUSES = ("active", "migrating", "suspended", "deleting")
ORG_PREFIX = "ORGANIZATION_STATUS_"
DEFAULT = 100


@click.group(cls=HelpGroup)
def org() -> None:
    """Organizations: create, list, show, change and delete them."""


@org.command("create")
@click.argument("name")
@click.option("--key", help="Idempotency key; by default a new one, which is printed.")
@with_retries
@with_json
@with_connection
def create_org(connection: CliConnection, name: str, key: str | None, retries: int, as_json: bool) -> None:
    """Create an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    told = CliLedger(connection, retries).make(ROOT, {"name": name}, key)
    slug = inner(told.facts, "slug", "slug")
    outcome = "Already created (replayed): organization" if told.is_replayed else "Made organization"
    facts = {**told.facts, "key": key, "replayed": told.is_replayed}
    say(as_json, facts, printable(f"{outcome} {slug} ({name}); key {key}"))


@org.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT, show_default=True, help="Maximum items to list.")
@click.option("--all", "is_all", is_flag=True, help="List all.")
@with_retries
@with_json
@with_connection
def list_orgs(connection: CliConnection, limit: int, is_all: bool, retries: int, as_json: bool) -> None:
    """List organizations."""
    pages = CliLedger(connection, retries).pages(ROOT, "organizations", {}, None if is_all else limit)
    if as_json:
        for page in pages:
            for one in page:
                click.echo(json.dumps(one))
        return
    show_table(ORG_HEAD, [_org_row(one) for page in pages for one in page], "There are no organizations.")


def _org_row(one: Facts) -> tuple[object, ...]:
    return inner(one, "slug", "slug"), one.get("name"), bare(one.get("status"), ORG_PREFIX), one.get("entries")


@org.command("show")
@click.argument("org", type=OrgType())
@with_retries
@with_json
@with_connection
def show_org(connection: CliConnection, org: CliLedgerScope, retries: int, as_json: bool) -> None:
    """Show an organization and its settings."""
    _tell_org(CliLedger(connection, retries).get(org.path), as_json)


def _tell_org(facts: Facts, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    lines = (
        ("org", inner(facts, "slug", "slug")),
        ("name", facts.get("name")),
        ("status", bare(facts.get("status"), ORG_PREFIX)),
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
    help="Retention of idempotency keys and clients, in seconds.",
)
@click.option("--eviction-interval", type=click.IntRange(min=1), metavar="N", help="Log entries between two evictions.")
@click.option(
    "--fence/--no-fence",
    default=None,
    help="Keep the last sequence of every client forever, or delete it after --ttl.",
)
@click.option("--status", type=click.Choice(STATUSES), help="New status; only an active organization accepts writes.")
@with_retries
@with_json
@with_connection
def change_org(
    connection: CliConnection,
    org: CliLedgerScope,
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
        "status": None if status is None else ORG_PREFIX + status.upper(),
    }
    if not given(wanted):
        raise click.UsageError("Give something to change: --ttl, --eviction-interval, --fence or --status.")
    _tell_org(CliLedger(connection, retries).send("PATCH", org.path, given(wanted)).facts, as_json)


@org.command("delete")
@click.argument("org", type=OrgType())
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def delete_org(
    connection: CliConnection, org: CliLedgerScope, dry_run: bool, yes: bool, retries: int, as_json: bool
) -> None:
    """Delete an organization: its data can no longer be read or written."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: give --yes if standard input is not a terminal.")
    ledger = CliLedger(connection, retries)
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


VAULT_HEAD = ("VAULT", "STATUS", "HEIGHT", "KEEPS", "STATE ROOT")
VAULT_PREFIX = "VAULT_STATUS_"
COMPACTED = "BLOCK_RETENTION_MODE_COMPACTED"


@click.group(cls=HelpGroup)
def vault() -> None:
    """Vaults: create, list, show, change and delete them."""


@vault.command("create")
@click.argument("org", type=OrgType())
@click.option(
    "--retain",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep only the bodies of the last N blocks, and all headers.",
)
@click.option("--key", help="Idempotency key; by default a new one, which is printed.")
@with_retries
@with_json
@with_connection
def create_vault(
    connection: CliConnection, org: CliLedgerScope, retain: int | None, key: str | None, retries: int, as_json: bool
) -> None:
    """Create a vault in an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    policy = {} if retain is None else {"retentionPolicy": {"mode": COMPACTED, "retentionBlocks": str(retain)}}
    told = CliLedger(connection, retries).make(f"{org.path}/vaults", policy, key)
    place = f"{org}/{inner(told.facts, 'vault', 'slug')}"
    outcome = "Already created (replayed): vault" if told.is_replayed else "Made vault"
    facts = {**told.facts, "place": place, "key": key, "replayed": told.is_replayed}
    say(as_json, facts, printable(f"{outcome} {place}; key {key}"))


@vault.command("list")
@click.argument("org", type=OrgType())
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT, show_default=True, help="Maximum items to list.")
@click.option("--all", "is_all", is_flag=True, help="List all.")
@with_retries
@with_json
@with_connection
def list_vaults(
    connection: CliConnection, org: CliLedgerScope, limit: int, is_all: bool, retries: int, as_json: bool
) -> None:
    """List the vaults of an organization."""
    pages = CliLedger(connection, retries).pages(f"{org.path}/vaults", "vaults", {}, None if is_all else limit)
    if as_json:
        for page in pages:
            for one in page:
                click.echo(json.dumps(one))
        return
    show_table(VAULT_HEAD, [_vault_row(one) for page in pages for one in page], "There are no vaults.")


def _vault_row(one: Facts) -> tuple[object, ...]:
    place = f"{inner(one, 'organization', 'slug')}/{inner(one, 'vault', 'slug')}"
    root = hex_of(inner(one, "stateRoot", "value"))
    return place, bare(one.get("status"), VAULT_PREFIX), one.get("height"), _kept(one), root


def _kept(one: Facts) -> str:
    if inner(one, "retentionPolicy", "mode") == COMPACTED:
        return f"the last {inner(one, 'retentionPolicy', 'retentionBlocks')}"
    return "all"


@vault.command("show")
@click.argument("vault", type=VaultType())
@with_retries
@with_json
@with_connection
def show_vault(connection: CliConnection, vault: CliLedgerScope, retries: int, as_json: bool) -> None:
    """Show a vault."""
    _tell_vault(CliLedger(connection, retries).get(vault.path), as_json)


def _tell_vault(facts: Facts, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, words in zip(VAULT_HEAD, _vault_row(facts), strict=True):
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
def change_vault(connection: CliConnection, vault: CliLedgerScope, status: str, retries: int, as_json: bool) -> None:
    """Change the status of a vault."""
    wanted = {"status": VAULT_PREFIX + status.upper().replace("-", "_")}
    _tell_vault(CliLedger(connection, retries).send("PATCH", vault.path, wanted).facts, as_json)


@vault.command("delete")
@click.argument("vault", type=VaultType())
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def delete_vault(
    connection: CliConnection, vault: CliLedgerScope, dry_run: bool, yes: bool, retries: int, as_json: bool
) -> None:
    """Delete a vault: its data can no longer be read or written."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: give --yes if standard input is not a terminal.")
    ledger = CliLedger(connection, retries)
    facts = {"place": str(vault), "deleted": not dry_run, "dry_run": dry_run}
    if not yes or dry_run:
        one = ledger.get(vault.path)
        about = printable(f"vault {vault} ({bare(one.get('status'), VAULT_PREFIX)}, height {one.get('height')})")
        if dry_run:
            say(as_json, facts, f"Would delete {about}")
            return
        click.echo(about, err=True)
        click.confirm("Delete it?", abort=True, err=True)
    ledger.send("DELETE", vault.path)
    say(as_json, facts, f"Deleted vault {vault}")
