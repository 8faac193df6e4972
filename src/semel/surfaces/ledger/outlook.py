"""The ledger at a glance: organizations, vaults and blocks, and what accepts no writes."""

from __future__ import annotations

from semel.engine.reading import Reading
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, Trouble, amount
from semel.store.protocol import Range
from semel.surfaces.ledger.model import LedgerStatus
from semel.surfaces.ledger.tables import LEDGER_ORG, LEDGER_PLACE, OrgRow, PlaceRow

SHOWN = 3
_OPEN = (LedgerStatus.ACTIVE.value, LedgerStatus.DELETED.value)


def outlook(reading: Reading) -> SurfaceOutlook:
    """Counts, and the organizations that are closed for writes without being deleted."""
    orgs = [OrgRow(*row) for row in reading.range(Range(LEDGER_ORG, "", (), MOST // 10))]
    places = [PlaceRow(*row) for row in reading.range(Range(LEDGER_PLACE, "", (), MOST // 10))]
    blocks = sum(place.height for place in places)
    counts = f"{amount(len(orgs), 'organization')}, {amount(len(places), 'log')}, {amount(blocks, 'block')}"
    closed = [org for org in orgs if org.status not in _OPEN]
    advice = "If that is no intention, set its status to ACTIVE: `semel ledger org set`."
    return SurfaceOutlook(
        counts,
        [Trouble(f"organization {org.org} is {LedgerStatus(org.status).name}", advice) for org in closed[:SHOWN]],
    )
