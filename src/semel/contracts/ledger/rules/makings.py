"""Organizations and vaults: created once for a key, changed by entries of the log.

Making an organization is not an entry of its log, which begins with it; everything after is.
"""

from __future__ import annotations

from collections.abc import Generator
from hashlib import sha256

import orjson

from semel.contracts.ledger.commands import (
    NO_QUOTA,
    ChangeOrg,
    ChangeVault,
    Made,
    MakeOrg,
    MakeVault,
    OrgSettings,
    Refusal,
)
from semel.contracts.ledger.limits import Policy
from semel.contracts.ledger.model import ZERO, Place, Status
from semel.contracts.ledger.rules.log import lower_limit, next_entry, no_org, refuse_change
from semel.contracts.ledger.rules.memory import moved_cuts
from semel.contracts.ledger.rules.records import genesis_of, org_of, vault_of
from semel.contracts.ledger.rules.state_tree import EMPTY_STATE_ROOT
from semel.contracts.ledger.tables import (
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
    EntryRow,
    MadeRow,
    OrgRow,
    PlaceRow,
)
from semel.engine.contract import Outcome, Stage, View
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable
from semel.store.table import Key

Needs = Generator[Stage, View, None]


def make_org_needs(command: MakeOrg) -> Needs:
    """The slugs it may get, the count of organizations, and what its key made."""
    orgs: list[tuple[AnyTable, Key]] = [(LEDGER_ORG, (slug,)) for slug in command.slugs]
    yield Stage(keys=[(LEDGER_TERM, ALONE), *orgs, *_made_key(command)])
    yield from _made_place(command)


def make_vault_needs(command: MakeVault) -> Needs:
    """The same for a vault."""
    places: list[tuple[AnyTable, Key]] = [(LEDGER_PLACE, (command.org, slug)) for slug in command.slugs]
    yield Stage(keys=[(LEDGER_TERM, ALONE), (LEDGER_ORG, (command.org,)), *places, *_made_key(command)])
    yield from _made_place(command)


def change_needs(command: ChangeOrg | ChangeVault) -> Needs:
    """The rows to be changed."""
    place = Place(command.org) if isinstance(command, ChangeOrg) else command.place
    yield Stage(keys=[(LEDGER_ORG, (place.org,)), (LEDGER_PLACE, place)])


def make_org(view: View, command: MakeOrg, policy: Policy, now: Now) -> Outcome:
    """A new organization with its own scope, unless the key has made one."""
    quota = command.quota
    told = b"" if quota == NO_QUOTA else b"quota:%d:%d:%d:" % quota
    digest = sha256(told + b"org:" + command.name).digest()
    known = _known(view, command, digest)
    if known is not None:
        return Outcome(known)
    term = view.get(LEDGER_TERM, ALONE) or NO_TERM
    if policy.max_orgs and term.orgs >= policy.max_orgs:
        return Outcome(Refusal("resource_exhausted", f"There may be {policy.max_orgs} organizations, and there are."))
    slug = next(slug for slug in command.slugs if view.get(LEDGER_ORG, (slug,)) is None)
    seconds, milliseconds = divmod(now.expiry_ms, 1_000)
    at = (seconds, milliseconds * 1_000_000)
    starts = (policy.eviction_interval, policy.ttl_seconds, int(policy.fence))
    row = OrgRow(slug, command.name, Status.ACTIVE.value, 0, *at, *starts, 0, 0, 0, *at, 0, 0, *quota, 0)
    view.put(LEDGER_ORG, row)
    view.insert(LEDGER_PLACE, _new_place(Place(slug), 0, at, term.term, 0))
    view.put(LEDGER_TERM, term._replace(orgs=term.orgs + 1))
    _remember(view, command, digest, Place(slug))
    return Outcome(Made(Place(slug), None, is_replay=False))


def make_vault(view: View, command: MakeVault, policy: Policy, now: Now) -> Outcome:
    """A new vault, unless the key has made one."""
    digest = sha256(b"vault:%d:%d" % (command.org, command.retain)).digest()
    known = _known(view, command, digest)
    if known is not None:
        return Outcome(known)
    org = view.get(LEDGER_ORG, (command.org,))
    refusal = refuse_change(org)
    if refusal is not None or org is None:
        return Outcome(refusal)
    most = lower_limit(policy.max_vaults, org.quota_vaults)
    if most and org.vaults >= most:
        message = f"This organization may have {most} vaults, and it has."
        return Outcome(Refusal("resource_exhausted", message))
    slug = next(slug for slug in command.slugs if view.get(LEDGER_PLACE, (command.org, slug)) is None)
    place = Place(command.org, slug)
    after = next_entry(org, now)
    at = (after.at_seconds, after.at_nanos)
    row = _new_place(place, command.retain, at, (view.get(LEDGER_TERM, ALONE) or NO_TERM).term, after.entries)
    view.put(LEDGER_PLACE, row)
    _log(view, after._replace(vaults=org.vaults + 1), ENTRY_VAULT, slug, b"%d" % command.retain)
    _remember(view, command, digest, place)
    return Outcome(Made(place, genesis_of(row), is_replay=False))


def change_org(view: View, command: ChangeOrg, now: Now) -> Outcome:
    """New settings or another status; a deleted organization stays deleted, and to delete it again changes nothing."""
    org = view.get(LEDGER_ORG, (command.org,))
    if org is None:
        return Outcome(no_org())
    if org.status == Status.DELETED.value and command.settings == OrgSettings(status=Status.DELETED):
        return Outcome(org_of(org))
    if org.status == Status.DELETED.value:
        return Outcome(Refusal("failed_precondition", "This organization is DELETED.", {"status": "DELETED"}))
    changed = _changed(next_entry(org, now), command.settings)
    _log(view, changed, ENTRY_ORG, 0, _detail(command.settings))
    return Outcome(org_of(changed))


def change_vault(view: View, command: ChangeVault, now: Now) -> Outcome:
    """Another status; a deleted vault stays deleted, and to delete it again changes nothing."""
    org, place = view.get(LEDGER_ORG, (command.place.org,)), view.get(LEDGER_PLACE, command.place)
    refusal = refuse_change(org)
    if refusal is not None or org is None:
        return Outcome(refusal)
    if place is None or command.place.vault == 0:
        return Outcome(Refusal("vault_not_found", "There is no such vault in this organization."))
    if place.status == command.status.value:
        return Outcome(vault_of(place))
    if place.status == Status.DELETED.value:
        return Outcome(Refusal("failed_precondition", "This vault is DELETED.", {"status": "DELETED"}))
    changed = place._replace(status=command.status.value)
    view.put(LEDGER_PLACE, changed)
    _log(view, next_entry(org, now), ENTRY_STATUS, command.place.vault, command.status.name.encode())
    return Outcome(vault_of(changed))


def _log(view: View, org: OrgRow, kind: int, vault: int, detail: bytes) -> None:
    """An entry that is no transaction; the organization's row already counts it."""
    view.insert(LEDGER_ENTRY, EntryRow(org.org, org.entries, kind, vault, org.at_seconds, org.at_nanos, detail))
    view.put(LEDGER_ORG, moved_cuts(org))


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


def _new_place(place: Place, retain: int, at: tuple[int, int], term: int, index: int) -> PlaceRow:
    return PlaceRow(*place, Status.ACTIVE.value, 0, ZERO, EMPTY_STATE_ROOT, retain, 0, *at, term, index)


def _made_key(command: MakeOrg | MakeVault) -> list[tuple[AnyTable, Key]]:
    return [(LEDGER_MADE, (command.owner, command.key))] if command.key else []


def _made_place(command: MakeOrg | MakeVault) -> Needs:
    """The result of a creation key, if it was used."""
    if not command.key:
        return
    view = yield Stage()
    made = view.get(LEDGER_MADE, (command.owner, command.key))
    if made is not None:
        yield Stage(keys=[(LEDGER_PLACE, (made.org, made.vault))])


def _known(view: View, command: MakeOrg | MakeVault, digest: bytes) -> Made | Refusal | None:
    made = view.get(LEDGER_MADE, (command.owner, command.key)) if command.key else None
    if made is None:
        return None
    if made.digest != digest:
        return Refusal("failed_precondition", "This key was used to create something else: take a new key.")
    row = view.get(LEDGER_PLACE, (made.org, made.vault))
    return Made(
        Place(made.org, made.vault), genesis_of(row) if row is not None and made.vault else None, is_replay=True
    )


def _remember(view: View, command: MakeOrg | MakeVault, digest: bytes, place: Place) -> None:
    if command.key:
        view.put(LEDGER_MADE, MadeRow(command.owner, command.key, digest, *place))
