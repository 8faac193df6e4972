"""`semel ledger org`, `vault` and `state`: organizations, vaults, and the sequence of a client."""

from __future__ import annotations

from typing import Annotated, Literal

import click

from semel.cli.command import AT_LEAST_1, Arg, Opt, Positional, Retrying, Sure, command, group
from semel.cli.ledger.places import AnyPlace, Org, Vault
from semel.cli.output import Listing, Said, printable
from semel.cli.session import advised
from semel.client.ledger.values import OrganizationInfo, VaultInfo
from semel.client.ledger.write_call import fresh_key

org = group("org", "Organizations: create, list, show, change and delete them.")
vault = group("vault", "Vaults: create, list, show, change and delete them.")

ORG_HEAD = ("ORG", "NAME", "STATUS", "ENTRIES")
VAULT_HEAD = ("VAULT", "STATUS", "HEIGHT", "KEEPS", "STATE ROOT")
DEFAULT = 100
NewKey = Annotated[str | None, Opt("Idempotency key; by default a new one, which is printed.")]
Limit = Annotated[int, Opt("Maximum items to list.", type=AT_LEAST_1, show_default=True)]
All = Annotated[bool, Opt("List all.", "--all")]


@command()
def state(client: Retrying, place: AnyPlace, writer: Annotated[str, Positional("CLIENT")]) -> Said:
    """Show the last committed sequence of a CLIENT in PLACE, and the next."""
    found = client.ledger.place(*place).state(writer)
    words = f"{writer} is not known in {place}; the next sequence is 1"
    if found.last_sequence:
        about = f"transaction {found.last_tx_id} at height {found.last_height}"
        last = found.last_sequence
        words = f"{writer} has committed up to {last} in {place} ({about}); the next is {last + 1}"
    return Said(found.facts, words)


def _advice(key: str) -> str:
    return f"It may be created: run this again with --key {printable(key)} to create it exactly once."


@command(org, "create")
def create_org(client: Retrying, name: Arg, key: NewKey = None) -> Said:
    """Create an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    with advised(_advice(key)):
        made = client.ledger.create_organization(name, key=key)
    outcome = "Already created (replayed): organization" if made.replayed else "Made organization"
    facts = {**made.facts, "key": key, "replayed": made.replayed}
    return Said(facts, f"{outcome} {made.place} ({name}); key {key}")


@command(org, "list")
def list_orgs(client: Retrying, limit: Limit = DEFAULT, is_all: All = False) -> Listing[OrganizationInfo]:
    """List organizations."""
    found, most = client.ledger.organizations(), None if is_all else limit
    return Listing(found, ORG_HEAD, _org_row, "There are no organizations.", most=most)


def _org_row(one: OrganizationInfo) -> tuple[object, ...]:
    return one.org, one.name, one.status, one.entries


@command(org, "show")
def show_org(client: Retrying, org: Org) -> Said:
    """Show an organization and its settings."""
    return _org_said(client.ledger.organization(org.org))


def _org_said(one: OrganizationInfo) -> Said:
    lines = {
        "org": one.org,
        "name": one.name,
        "status": one.status,
        "entries": one.entries,
        "ttl": f"{one.ttl_seconds} s",
        "eviction": f"every {one.eviction_interval} entries",
        "fence": "on" if one.fence else "off",
    }
    return Said(one.facts, [f"{name:<9} {words}" for name, words in lines.items()])


@command(org, "set")
def change_org(
    client: Retrying,
    org: Org,
    ttl: Annotated[int | None, Opt("Retention of idempotency keys and clients.", "", "SECONDS", AT_LEAST_1)] = None,
    eviction_interval: Annotated[int | None, Opt("Log entries between two evictions.", "", "N", AT_LEAST_1)] = None,
    fence: Annotated[
        bool | None,
        Opt("Keep the last sequence of every client forever, or delete it after --ttl.", "--fence/--no-fence"),
    ] = None,
    status: Annotated[
        Literal["active", "migrating", "suspended", "deleting"] | None,
        Opt("New status; only an active organization accepts writes."),
    ] = None,
) -> Said:
    """Change settings of an organization, or its status."""
    if ttl is None and eviction_interval is None and fence is None and status is None:
        raise click.UsageError("Give something to change: --ttl, --eviction-interval, --fence or --status.")
    changed = client.ledger.change_organization(
        org.org, ttl_seconds=ttl, eviction_interval=eviction_interval, fence=fence, status=status
    )
    return _org_said(changed)


@command(org, "delete")
def delete_org(client: Retrying, org: Org, sure: Sure) -> Said:
    """Delete an organization: its data can no longer be read or written."""

    def about() -> str:
        one = client.ledger.organization(org.org)
        return f"organization {org} ({one.name}, {one.entries} entries)"

    if plan := sure.plan({"organization": org.org}, about):
        return plan
    client.ledger.delete_organization(org.org)
    return Said({"organization": org.org, "deleted": True, "dry_run": False}, f"Deleted organization {org}")


@command(vault, "create")
def create_vault(
    client: Retrying,
    org: Org,
    retain: Annotated[
        int | None, Opt("Keep only the bodies of the last N blocks, and all headers.", "", "N", AT_LEAST_1)
    ] = None,
    key: NewKey = None,
) -> Said:
    """Create a vault in an organization. The server assigns its number."""
    key = fresh_key() if key is None else key
    with advised(_advice(key)):
        made = client.ledger.create_vault(org.org, retained_blocks=retain, key=key)
    outcome = "Already created (replayed): vault" if made.replayed else "Made vault"
    facts = {**made.facts, "place": str(made.place), "key": key, "replayed": made.replayed}
    return Said(facts, f"{outcome} {made.place}; key {key}")


@command(vault, "list")
def list_vaults(client: Retrying, org: Org, limit: Limit = DEFAULT, is_all: All = False) -> Listing[VaultInfo]:
    """List the vaults of an organization."""
    found, most = client.ledger.vaults(org.org), None if is_all else limit
    return Listing(found, VAULT_HEAD, _vault_row, "There are no vaults.", most=most)


def _vault_row(one: VaultInfo) -> tuple[object, ...]:
    kept = "all" if one.retained_blocks is None else f"the last {one.retained_blocks}"
    return one.place, one.status, one.height, kept, one.state_root


@command(vault, "show")
def show_vault(client: Retrying, vault: Vault) -> Said:
    """Show a vault."""
    return _vault_said(client.ledger.vault(vault.org, vault.vault or ""))


def _vault_said(one: VaultInfo) -> Said:
    lines = zip(VAULT_HEAD, _vault_row(one), strict=True)
    return Said(one.facts, [f"{name.lower():<11} {words}" for name, words in lines])


@command(vault, "set")
def change_vault(
    client: Retrying,
    vault: Vault,
    status: Annotated[Literal["active", "read-only"], Opt("New status; only an active vault accepts writes.")],
) -> Said:
    """Change the status of a vault."""
    return _vault_said(client.ledger.change_vault(vault.org, vault.vault or "", status=status))


@command(vault, "delete")
def delete_vault(client: Retrying, vault: Vault, sure: Sure) -> Said:
    """Delete a vault: its data can no longer be read or written."""

    def about() -> str:
        one = client.ledger.vault(vault.org, vault.vault or "")
        return f"vault {vault} ({one.status}, height {one.height})"

    if plan := sure.plan({"place": str(vault)}, about):
        return plan
    client.ledger.delete_vault(vault.org, vault.vault or "")
    return Said({"place": str(vault), "deleted": True, "dry_run": False}, f"Deleted vault {vault}")
