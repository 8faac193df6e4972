"""Organizations and vaults: creation once for each key, changes as entries of the organization's log, and access
checks.

The creation of an organization is not an entry of its log, which begins with it; every later change is.
"""

from __future__ import annotations

from collections.abc import Generator
from hashlib import sha256

import orjson

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key
from semel.surfaces.ledger.commands import (
    NO_QUOTA,
    ChangeOrg,
    ChangeVault,
    CreatedPlace,
    CreateOrg,
    CreateVault,
    OrgSettings,
)
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import ZERO, LedgerPlace, LedgerStatus
from semel.surfaces.ledger.rules.chain import genesis_of, org_of, vault_of
from semel.surfaces.ledger.rules.commits import advance_cuts
from semel.surfaces.ledger.rules.group_rows import next_time
from semel.surfaces.ledger.rules.state_tree import EMPTY_STATE_ROOT
from semel.surfaces.ledger.tables import (
    ALONE,
    ENTRY_ORG,
    ENTRY_STATUS,
    ENTRY_VAULT,
    LEDGER_ENTRY,
    LEDGER_MADE,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_TERM,
    NO_TERM,
    CreationRow,
    EntryRow,
    OrgRow,
    PlaceRow,
)

REGISTRY = b"ledger"
"""The lock of the term and the list of organizations: shared by every write, exclusive for changes of them."""

CREATION = b"ledger making"
"""The lock of the objects that callers' keys have created."""


def log_lock(org: int) -> Lock:
    """The lock of one organization's log."""
    return Lock(b"ledger:%d" % org)


def lower_limit(one: int, other: int) -> int:
    """The lower of two limits; 0 means no limit."""
    return min(one, other) if one and other else one or other


def next_entry(org: OrgRow, now: Now) -> OrgRow:
    """The organization with one more entry, at the present time."""
    at = next_time((org.at_seconds, org.at_nanos), now)
    return org._replace(entries=org.entries + 1, at_seconds=at[0], at_nanos=at[1])


def no_org() -> Refusal:
    """The refusal of an unknown organization."""
    return Refusal("ledger:organization_not_found", "There is no such organization.")


def no_vault() -> Refusal:
    """The refusal of an unknown vault."""
    return Refusal("ledger:vault_not_found", "There is no such vault in this organization.")


def broken_chain(place: PlaceRow) -> Refusal:
    """The refusal for a chain whose stored rows contradict each other: no retry can repair it."""
    message = (
        f"The head of this chain, at height {place.height}, is not the block that is stored there: rows were lost or "
        "changed. Nothing was written; restore the data from a backup."
    )
    return Refusal("ledger:data_loss", message, {"height": str(place.height)})


def refuse_write(org: OrgRow | None, place: PlaceRow | None) -> Refusal | None:
    """Why a place accepts no writes; None if it does."""
    refusal = refuse_change(org)
    if refusal is not None:
        return refusal
    if place is None or place.status == LedgerStatus.DELETED.value:
        return no_vault()
    if place.status == LedgerStatus.READ_ONLY.value:
        return Refusal("ledger:permission_denied", "This vault is read only.")
    return None


def refuse_change(org: OrgRow | None) -> Refusal | None:
    """Why an organization accepts no changes; None if it does."""
    if org is None:
        return no_org()
    if org.status != LedgerStatus.ACTIVE.value:
        name = LedgerStatus(org.status).name
        return Refusal(
            "ledger:failed_precondition", f"This organization is {name} and accepts no writes.", {"status": name}
        )
    return None


def refuse_read(org: OrgRow | None, place: PlaceRow | None) -> Refusal | None:
    """Why a place cannot be read; None if it can."""
    if org is None or org.status == LedgerStatus.DELETED.value:
        return no_org()
    return no_vault() if place is None or place.status == LedgerStatus.DELETED.value else None


Needs = Generator[Stage, View, None]


def create_org_needs(command: CreateOrg) -> Needs:
    """The slugs that it may get, the count of organizations, and the object that its key created."""
    orgs: list[tuple[AnyTable, Key]] = [(LEDGER_ORG, (slug,)) for slug in command.slugs]
    yield Stage(keys=[(LEDGER_TERM, ALONE), *orgs, *_creation_key(command)])
    yield from _creation_needs(command)


def create_vault_needs(command: CreateVault) -> Needs:
    """The same for a vault."""
    places: list[tuple[AnyTable, Key]] = [(LEDGER_PLACE, (command.org, slug)) for slug in command.slugs]
    yield Stage(keys=[(LEDGER_TERM, ALONE), (LEDGER_ORG, (command.org,)), *places, *_creation_key(command)])
    yield from _creation_needs(command)


def change_needs(command: ChangeOrg | ChangeVault) -> Needs:
    """The rows to be changed."""
    place = LedgerPlace(command.org) if isinstance(command, ChangeOrg) else command.place
    yield Stage(keys=[(LEDGER_ORG, (place.org,)), (LEDGER_PLACE, place)])


def create_org(view: View, command: CreateOrg, policy: LedgerPolicy, now: Now) -> DecisionResult:
    """Create an organization with its own scope, unless the key has created one."""
    quota = command.quota
    told = b"" if quota == NO_QUOTA else b"quota:%d:%d:%d:" % quota
    digest = sha256(told + b"org:" + command.name).digest()
    known = _known_creation(view, command, digest)
    if known is not None:
        return DecisionResult(known)
    term = view.get(LEDGER_TERM, ALONE) or NO_TERM
    if policy.max_orgs and term.orgs >= policy.max_orgs:
        return DecisionResult(
            Refusal("ledger:resource_exhausted", f"The limit of {policy.max_orgs} organizations is reached.")
        )
    slug = next(slug for slug in command.slugs if view.get(LEDGER_ORG, (slug,)) is None)
    seconds, milliseconds = divmod(now.expiry_ms, 1_000)
    at = (seconds, milliseconds * 1_000_000)
    starts = (policy.eviction_interval, policy.ttl_seconds, int(policy.fence))
    row = OrgRow(slug, command.name, LedgerStatus.ACTIVE.value, 0, *at, *starts, 0, 0, 0, *at, 0, 0, *quota, 0)
    view.put(LEDGER_ORG, row)
    view.insert(LEDGER_PLACE, _new_place(LedgerPlace(slug), 0, at, term.term, 0))
    view.put(LEDGER_TERM, term._replace(orgs=term.orgs + 1))
    _remember_creation(view, command, digest, LedgerPlace(slug))
    return DecisionResult(CreatedPlace(LedgerPlace(slug), None, is_replay=False))


def create_vault(view: View, command: CreateVault, policy: LedgerPolicy, now: Now) -> DecisionResult:
    """Create a vault, unless the key has created one."""
    digest = sha256(b"vault:%d:%d" % (command.org, command.retain)).digest()
    known = _known_creation(view, command, digest)
    if known is not None:
        return DecisionResult(known)
    org = view.get(LEDGER_ORG, (command.org,))
    refusal = refuse_change(org)
    if refusal is not None or org is None:
        return DecisionResult(refusal)
    most = lower_limit(policy.max_vaults, org.quota_vaults)
    if most and org.vaults >= most:
        message = f"The limit of {most} vaults in this organization is reached."
        return DecisionResult(Refusal("ledger:resource_exhausted", message))
    slug = next(slug for slug in command.slugs if view.get(LEDGER_PLACE, (command.org, slug)) is None)
    place = LedgerPlace(command.org, slug)
    after = next_entry(org, now)
    at = (after.at_seconds, after.at_nanos)
    row = _new_place(place, command.retain, at, (view.get(LEDGER_TERM, ALONE) or NO_TERM).term, after.entries)
    view.put(LEDGER_PLACE, row)
    _add_entry(view, after._replace(vaults=org.vaults + 1), ENTRY_VAULT, slug, b"%d" % command.retain)
    _remember_creation(view, command, digest, place)
    return DecisionResult(CreatedPlace(place, genesis_of(row), is_replay=False))


def change_org(view: View, command: ChangeOrg, now: Now) -> DecisionResult:
    """Change settings or status; a deleted organization stays deleted, and deleting it again changes nothing."""
    org = view.get(LEDGER_ORG, (command.org,))
    if org is None:
        return DecisionResult(no_org())
    if org.status == LedgerStatus.DELETED.value and command.settings == OrgSettings(status=LedgerStatus.DELETED):
        return DecisionResult(org_of(org))
    if org.status == LedgerStatus.DELETED.value:
        return DecisionResult(
            Refusal("ledger:failed_precondition", "This organization is DELETED.", {"status": "DELETED"})
        )
    changed = _changed(next_entry(org, now), command.settings)
    _add_entry(view, changed, ENTRY_ORG, 0, _detail(command.settings))
    return DecisionResult(org_of(changed))


def change_vault(view: View, command: ChangeVault, now: Now) -> DecisionResult:
    """Change the status; a deleted vault stays deleted, and deleting it again changes nothing."""
    org, place = view.get(LEDGER_ORG, (command.place.org,)), view.get(LEDGER_PLACE, command.place)
    refusal = refuse_change(org)
    if refusal is not None or org is None:
        return DecisionResult(refusal)
    if place is None or command.place.vault == 0:
        return DecisionResult(Refusal("ledger:vault_not_found", "There is no such vault in this organization."))
    if place.status == command.status.value:
        return DecisionResult(vault_of(place))
    if place.status == LedgerStatus.DELETED.value:
        return DecisionResult(Refusal("ledger:failed_precondition", "This vault is DELETED.", {"status": "DELETED"}))
    changed = place._replace(status=command.status.value)
    view.put(LEDGER_PLACE, changed)
    _add_entry(view, next_entry(org, now), ENTRY_STATUS, command.place.vault, command.status.name.encode())
    return DecisionResult(vault_of(changed))


def _add_entry(view: View, org: OrgRow, kind: int, vault: int, detail: bytes) -> None:
    """Store an entry that is not a transaction; the row of the organization already counts it."""
    view.insert(LEDGER_ENTRY, EntryRow(org.org, org.entries, kind, vault, org.at_seconds, org.at_nanos, detail))
    view.put(LEDGER_ORG, advance_cuts(org))


def _changed(org: OrgRow, settings: OrgSettings) -> OrgRow:
    if settings.eviction_interval is not None:
        org = org._replace(interval=settings.eviction_interval)
    if settings.ttl_seconds is not None:
        org = org._replace(ttl_seconds=settings.ttl_seconds)
    if settings.fence is not None:
        org = org._replace(fence=int(settings.fence))
    return org if settings.status is None else org._replace(status=settings.status.value)


def _detail(settings: OrgSettings) -> bytes:
    facts = {name: value for name, value in settings._asdict().items() if value is not None}
    if settings.status is not None:
        facts["status"] = settings.status.name
    return orjson.dumps(facts)


def _new_place(place: LedgerPlace, retain: int, at: tuple[int, int], term: int, index: int) -> PlaceRow:
    return PlaceRow(*place, LedgerStatus.ACTIVE.value, 0, ZERO, EMPTY_STATE_ROOT, retain, 0, *at, term, index)


def _creation_key(command: CreateOrg | CreateVault) -> list[tuple[AnyTable, Key]]:
    return [(LEDGER_MADE, (command.owner, command.key))] if command.key else []


def _creation_needs(command: CreateOrg | CreateVault) -> Needs:
    """The result of a creation key, if it was used."""
    if not command.key:
        return
    view = yield Stage()
    made = view.get(LEDGER_MADE, (command.owner, command.key))
    if made is not None:
        yield Stage(keys=[(LEDGER_PLACE, (made.org, made.vault))])


def _known_creation(view: View, command: CreateOrg | CreateVault, digest: bytes) -> CreatedPlace | Refusal | None:
    made = view.get(LEDGER_MADE, (command.owner, command.key)) if command.key else None
    if made is None:
        return None
    if made.digest != digest:
        return Refusal("ledger:failed_precondition", "This key was used to create something else: use a new key.")
    row = view.get(LEDGER_PLACE, (made.org, made.vault))
    return CreatedPlace(
        LedgerPlace(made.org, made.vault), genesis_of(row) if row is not None and made.vault else None, is_replay=True
    )


def _remember_creation(view: View, command: CreateOrg | CreateVault, digest: bytes, place: LedgerPlace) -> None:
    if command.key:
        view.put(LEDGER_MADE, CreationRow(command.owner, command.key, digest, *place))
