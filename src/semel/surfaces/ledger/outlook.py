"""The ledger at a glance: organizations, vaults and blocks, and what accepts no writes."""

from __future__ import annotations

from collections.abc import Iterator

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.ops.surface_outlook import MOST, SurfaceOutlook, Trouble, amount, near
from semel.server.settings import ServerSettings, settings_of
from semel.store.protocol import Range
from semel.surfaces.ledger.model import LedgerPlace, LedgerStatus
from semel.surfaces.ledger.reading import check_head
from semel.surfaces.ledger.settings import LedgerSettings
from semel.surfaces.ledger.tables import LEDGER_ORG, LEDGER_PLACE, OrgRow, PlaceRow

SHOWN = 3
_OPEN = (LedgerStatus.ACTIVE.value, LedgerStatus.DELETED.value)


def outlook(reading: Reading, settings: ServerSettings) -> SurfaceOutlook:
    """Counts, the organizations that are closed for writes without being deleted, and the logs whose end is broken."""
    orgs = [OrgRow(*row) for row in reading.range(Range(LEDGER_ORG, "", (), MOST // 10))]
    places = [PlaceRow(*row) for row in reading.range(Range(LEDGER_PLACE, "", (), MOST // 10))]
    blocks = sum(place.height for place in places)
    counts = f"{amount(len(orgs), 'organization')}, {amount(len(places), 'log')}, {amount(blocks, 'block')}"
    closed = [org for org in orgs if org.status not in _OPEN]
    advice = "If that is no intention, set its status to ACTIVE: `semel ledger org set`."
    most = settings_of(settings, LedgerSettings).ledger_max_orgs
    return SurfaceOutlook(
        counts,
        [
            *(Trouble(f"organization {org.org} is {LedgerStatus(org.status).name}", advice) for org in closed[:SHOWN]),
            *list(_broken(reading, places))[:SHOWN],
            *near(len(orgs), most, "organizations", "SEMEL_LEDGER_MAX_ORGS"),
        ],
    )


def _broken(reading: Reading, places: list[PlaceRow]) -> Iterator[Trouble]:
    """Logs whose tip is not their last block, which take no writes."""
    for row in places:
        try:
            check_head(reading, LedgerPlace(row.org, row.vault))
        except Refused as refused:
            if refused.refusal.code == "ledger:data_loss":
                advice = "Run `semel check --surface ledger`, and restore the data from a backup."
                yield Trouble(f"the log of vault {row.vault} of organization {row.org} is broken at its end", advice)
