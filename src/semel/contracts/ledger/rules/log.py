"""The log of an organization: the next entry and its time, and whether it accepts writes."""

from __future__ import annotations

from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.model import Status
from semel.contracts.ledger.tables import OrgRow, PlaceRow
from semel.kernel.clock import Now
from semel.store.protocol import Lock

REGISTRY = b"ledger"
"""The lock of the term and the list of organizations: shared by every write, held alone by what changes them."""

MAKING = b"ledger making"
"""The lock of what callers' keys have created."""


def log_lock(org: int) -> Lock:
    """The lock of one organization's log."""
    return Lock(b"ledger:%d" % org)


def lower_limit(one: int, other: int) -> int:
    """The lower of two limits, of which 0 is none."""
    return min(one, other) if one and other else one or other


def next_entry(org: OrgRow, now: Now) -> OrgRow:
    """The organization with one more entry, proposed now; time never falls along a log.

    A clock that has just jumped far ahead is not believed at once (see `kernel.clock`): a wrong date must not evict.
    """
    seconds, milliseconds = divmod(now.expiry_ms, 1_000)
    at = max((seconds, milliseconds * 1_000_000), (org.at_seconds, org.at_nanos))
    return org._replace(entries=org.entries + 1, at_seconds=at[0], at_nanos=at[1])


def no_org() -> Refusal:
    """The organization is not known."""
    return Refusal("organization_not_found", "There is no such organization.")


def no_vault() -> Refusal:
    """The vault is not known."""
    return Refusal("vault_not_found", "There is no such vault in this organization.")


def broken_chain(place: PlaceRow) -> Refusal:
    """The refusal for a chain whose stored rows contradict each other: no retry can repair it."""
    message = (
        f"The head of this chain, at height {place.height}, is not the block that is stored there: rows were lost or "
        "changed. Nothing was written; restore the data from a backup."
    )
    return Refusal("data_loss", message, {"height": str(place.height)})


def refuse_write(org: OrgRow | None, place: PlaceRow | None) -> Refusal | None:
    """Why a place takes no writes, if it does not."""
    refusal = refuse_change(org)
    if refusal is not None:
        return refusal
    if place is None or place.status == Status.DELETED.value:
        return no_vault()
    if place.status == Status.READ_ONLY.value:
        return Refusal("permission_denied", "This vault is read only.")
    return None


def refuse_change(org: OrgRow | None) -> Refusal | None:
    """Why an organization takes no changes, if it does not."""
    if org is None:
        return no_org()
    if org.status != Status.ACTIVE.value:
        name = Status(org.status).name
        return Refusal("failed_precondition", f"This organization is {name} and takes no writes.", {"status": name})
    return None


def refuse_read(org: OrgRow | None, place: PlaceRow | None) -> Refusal | None:
    """Why a place cannot be read, if it cannot."""
    if org is None or org.status == Status.DELETED.value:
        return no_org()
    return no_vault() if place is None or place.status == Status.DELETED.value else None
