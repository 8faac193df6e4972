"""`semel ledger org`, `vault` and `state`: organizations, vaults, and the sequence of a client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Literal, TypeVar

import click

from semel.cli.command import RETRIES, Arg, DryRun, Json, Opt, Positional, Retries, Yes, command, group
from semel.cli.ledger.places import AnyPlace, Org, Vault
from semel.cli.output import confirmed, printable, say, show_table
from semel.cli.session import sentence
from semel.client import Client, OutcomeUnknown
from semel.client.ledger.values import OrganizationInfo, VaultInfo
from semel.client.ledger.write_call import fresh_key

org = group("org", "Organizations: create, list, show, change and delete them.")
vault = group("vault", "Vaults: create, list, show, change and delete them.")

ORG_HEAD = ("ORG", "NAME", "STATUS", "ENTRIES")
VAULT_HEAD = ("VAULT", "STATUS", "HEIGHT", "KEEPS", "STATE ROOT")
DEFAULT = 100
Listed = TypeVar("Listed", OrganizationInfo, VaultInfo)
Many = tuple[str, ...]
Row = tuple[object, ...]
NewKey = Annotated[str | None, Opt("Idempotency key; by default a new one, which is printed.")]
Limit = Annotated[int, Opt("Maximum items to list.", type=click.IntRange(min=1), show_default=True)]
All = Annotated[bool, Opt("List all.", "--all")]


@command(name="state")
def state(
    client: Client,
    place: AnyPlace,
    writer: Annotated[str, Positional("CLIENT")],
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Show the last committed sequence of a CLIENT in PLACE, and the next."""
    found = client.ledger.place(*place).state(writer)
    words = f"{writer} is not known in {place}; the next sequence is 1"
    if found.last_sequence:
        about = f"transaction {found.last_tx_id} at height {found.last_height}"
        last = found.last_sequence
        words = f"{writer} has committed up to {last} in {place} ({about}); the next is {last + 1}"
    say(as_json, dict(found.facts), printable(words))


@contextmanager
def _told_key(key: str) -> Iterator[None]:
    """If the outcome of a creation is unknown, the error names the key."""
    try:
        yield
    except OutcomeUnknown as error:
        advice = f"It may be created: run this again with --key {printable(key)} to create it exactly once."
        raise click.ClickException(f"{sentence(error)} {advice}") from error


def _listed(
    items: Iterable[Listed], limit: int | None, as_json: bool, head: Many, row: Callable[[Listed], Row], none: str
) -> None:
    chosen = islice(items, limit)
    if not as_json:
        show_table(head, map(row, chosen), none)
        return
    for one in chosen:
        click.echo(json.dumps(one.facts))


@command(org, "create")
def create_org(
    client: Client, name: Arg, key: NewKey = None, retries: Retries = RETRIES, as_json: Json = False
) -> None:
    """Create an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    with _told_key(key):
        made = client.ledger.create_organization(name, key=key)
    outcome = "Already created (replayed): organization" if made.replayed else "Made organization"
    facts = {**made.facts, "key": key, "replayed": made.replayed}
    say(as_json, facts, printable(f"{outcome} {made.place} ({name}); key {key}"))


@command(org, "list")
def list_orgs(
    client: Client, limit: Limit = DEFAULT, is_all: All = False, retries: Retries = RETRIES, as_json: Json = False
) -> None:
    """List organizations."""
    found = client.ledger.organizations()
    _listed(found, None if is_all else limit, as_json, ORG_HEAD, _org_row, "There are no organizations.")


def _org_row(one: OrganizationInfo) -> Row:
    return one.org, one.name, one.status, one.entries


@command(org, "show")
def show_org(client: Client, org: Org, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Show an organization and its settings."""
    _tell_org(client.ledger.organization(org.org), as_json)


def _tell_org(one: OrganizationInfo, as_json: bool) -> None:
    lines = (
        ("org", one.org),
        ("name", one.name),
        ("status", one.status),
        ("entries", one.entries),
        ("ttl", f"{one.ttl_seconds} s"),
        ("eviction", f"every {one.eviction_interval} entries"),
        ("fence", "on" if one.fence else "off"),
    )
    say(as_json, dict(one.facts), "\n".join(printable(f"{name:<9} {words}") for name, words in lines))


@command(org, "set")
def change_org(
    client: Client,
    org: Org,
    ttl: Annotated[
        int | None, Opt("Retention of idempotency keys and clients.", metavar="SECONDS", type=click.IntRange(min=1))
    ] = None,
    eviction_interval: Annotated[
        int | None, Opt("Log entries between two evictions.", metavar="N", type=click.IntRange(min=1))
    ] = None,
    fence: Annotated[
        bool | None,
        Opt("Keep the last sequence of every client forever, or delete it after --ttl.", "--fence/--no-fence"),
    ] = None,
    status: Annotated[
        Literal["active", "migrating", "suspended", "deleting"] | None,
        Opt("New status; only an active organization accepts writes."),
    ] = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Change settings of an organization, or its status."""
    if ttl is None and eviction_interval is None and fence is None and status is None:
        raise click.UsageError("Give something to change: --ttl, --eviction-interval, --fence or --status.")
    changed = client.ledger.change_organization(
        org.org, ttl_seconds=ttl, eviction_interval=eviction_interval, fence=fence, status=status
    )
    _tell_org(changed, as_json)


@command(org, "delete")
def delete_org(
    client: Client,
    org: Org,
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Delete an organization: its data can no longer be read or written."""

    def about() -> str:
        one = client.ledger.organization(org.org)
        return f"organization {org} ({one.name}, {one.entries} entries)"

    if confirmed(about, {"organization": org.org}, yes=yes, dry_run=dry_run, as_json=as_json):
        client.ledger.delete_organization(org.org)
        say(as_json, {"organization": org.org, "deleted": True, "dry_run": False}, f"Deleted organization {org}")


@command(vault, "create")
def create_vault(
    client: Client,
    org: Org,
    retain: Annotated[
        int | None,
        Opt("Keep only the bodies of the last N blocks, and all headers.", metavar="N", type=click.IntRange(min=1)),
    ] = None,
    key: NewKey = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Create a vault in an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    with _told_key(key):
        made = client.ledger.create_vault(org.org, retained_blocks=retain, key=key)
    outcome = "Already created (replayed): vault" if made.replayed else "Made vault"
    facts = {**made.facts, "place": str(made.place), "key": key, "replayed": made.replayed}
    say(as_json, facts, printable(f"{outcome} {made.place}; key {key}"))


@command(vault, "list")
def list_vaults(
    client: Client,
    org: Org,
    limit: Limit = DEFAULT,
    is_all: All = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """List the vaults of an organization."""
    found = client.ledger.vaults(org.org)
    _listed(found, None if is_all else limit, as_json, VAULT_HEAD, _vault_row, "There are no vaults.")


def _vault_row(one: VaultInfo) -> Row:
    kept = "all" if one.retained_blocks is None else f"the last {one.retained_blocks}"
    return one.place, one.status, one.height, kept, one.state_root


@command(vault, "show")
def show_vault(client: Client, vault: Vault, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Show a vault."""
    _tell_vault(client.ledger.vault(vault.org, vault.vault or ""), as_json)


def _tell_vault(one: VaultInfo, as_json: bool) -> None:
    lines = zip(VAULT_HEAD, _vault_row(one), strict=True)
    say(as_json, dict(one.facts), "\n".join(printable(f"{name.lower():<11} {words}") for name, words in lines))


@command(vault, "set")
def change_vault(
    client: Client,
    vault: Vault,
    status: Annotated[
        Literal["active", "read-only"], Opt("New status; only an active vault accepts writes.", is_required=True)
    ],
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Change the status of a vault."""
    _tell_vault(client.ledger.change_vault(vault.org, vault.vault or "", status=status), as_json)


@command(vault, "delete")
def delete_vault(
    client: Client,
    vault: Vault,
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Delete a vault: its data can no longer be read or written."""

    def about() -> str:
        one = client.ledger.vault(vault.org, vault.vault or "")
        return f"vault {vault} ({one.status}, height {one.height})"

    if confirmed(about, {"place": str(vault)}, yes=yes, dry_run=dry_run, as_json=as_json):
        client.ledger.delete_vault(vault.org, vault.vault or "")
        say(as_json, {"place": str(vault), "deleted": True, "dry_run": False}, f"Deleted vault {vault}")
