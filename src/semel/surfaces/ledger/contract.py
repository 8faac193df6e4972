"""The contract of the ledger for the engine.

Each organization has a lock. All commands share one more lock, which a new term and a new organization hold alone.

A crash leaves every command executed completely or not at all: a block, its state, its commit and the sequence of its
client are one transaction of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.plain_write import LoadPlain, PlainResult, StagedPlainContract
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock, Range
from semel.store.table import Key
from semel.surfaces.ledger.commands import (
    ChangeOrg,
    ChangeVault,
    CreateOrg,
    CreateVault,
    ExpireEntities,
    ForgetStreams,
    FreePlace,
    LedgerCommand,
    OpenTerm,
    WriteCommand,
    WriteMany,
)
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.expiry import expire_entities, expire_needs, find_expired
from semel.surfaces.ledger.rules.group_rows import PageCache
from semel.surfaces.ledger.rules.maintenance import (
    forget_needs,
    forget_streams,
    free_needs,
    free_place,
    may_be_freed,
    open_needs,
    open_term,
)
from semel.surfaces.ledger.rules.organizations import (
    CREATION,
    REGISTRY,
    change_needs,
    change_org,
    change_vault,
    create_org,
    create_org_needs,
    create_vault,
    create_vault_needs,
    log_lock,
)
from semel.surfaces.ledger.rules.plain_load import LoadedGroups, load_groups
from semel.surfaces.ledger.rules.plain_write import PlainGroup, decide_plain
from semel.surfaces.ledger.rules.write import order_of, write, write_many, write_needs
from semel.surfaces.ledger.tables import LEDGER_BLOCK, LEDGER_ORG, LEDGER_PLACE, LEDGER_STREAM, OrgRow, PlaceRow

FREED_BLOCKS, FREED_BYTES, FREED_STREAMS = 250, 4 * 1024 * 1024, 500
PLACES_AT_ONCE = 100
"""Limit of organizations and places in one round of chores; the next round continues after them."""

Needs = Generator[Stage, View, None]


class LedgerContract(StagedPlainContract):
    """The contract of the ledger, under one policy; `node` is the name of this node in the headers of blocks."""

    name = "ledger"

    def __init__(self, policy: LedgerPolicy | None = None, node: bytes = b"") -> None:
        self.policy = policy or LedgerPolicy()
        self._node = node
        self.pages = PageCache(0)
        """Pages of current trees in memory; without room unless this process alone writes to the store."""
        self.is_queued: Callable[[Order], bool] = lambda order: False
        """Whether a transaction with this sequence is in the queue and not decided (see `write_queue`)."""
        self._swept: LedgerPlace | None = None
        self._thinned: int | None = None
        self._expired: Key = ()

    def locks(self, command: LedgerCommand) -> Sequence[Lock]:
        """The lock of the organization; a new term or a new organization locks the registry exclusively."""
        if isinstance(command, OpenTerm | CreateOrg):
            return (Lock(REGISTRY), *_making(command))
        if isinstance(command, CreateVault):
            return (log_lock(command.org), Lock(REGISTRY, shared=True), *_making(command))
        return (log_lock(_org_of(command)), Lock(REGISTRY, shared=True))

    def needs(self, command: LedgerCommand) -> Needs:
        """The rows that each command reads."""
        if isinstance(command, WriteMany):
            return write_needs(command.writes, self.pages)
        if isinstance(command, WriteCommand):
            return write_needs((command,), self.pages)
        if isinstance(command, ExpireEntities):
            return expire_needs(command, self.pages)
        return _NEEDS[type(command)](command)

    def order(self, command: LedgerCommand) -> Order | None:
        """The order of a write with a sequence; None for other commands."""
        return order_of(command) if isinstance(command, WriteCommand) else None

    def decide(self, view: View, command: LedgerCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        if isinstance(command, WriteMany):
            return write_many(view, command, self.policy, now, self.pages, self.is_queued)
        if isinstance(command, WriteCommand):
            return write(view, command, self.policy, now, self.pages)
        if isinstance(command, ExpireEntities):
            return expire_entities(view, command, now, self.pages)
        return _DECISIONS[type(command)](view, command, self.policy, now)

    def load_plain(self, load: LoadPlain, writes: Sequence[PlainGroup]) -> LoadedGroups:
        """The rows and pages that plain groups need."""
        return load_groups(load, [group.commands if group.is_plain else () for group in writes], self.pages.pages)

    def decide_plain(self, rows: Any, writes: Sequence[PlainGroup], now: Now) -> PlainResult:
        """Decide plain groups, and leave the others."""
        return decide_plain(rows, writes, self.policy, now)

    def chores(self, reading: Reading) -> Sequence[LedgerCommand]:
        """Expired entities, places with blocks to free, and evicted clients; successive rounds cover all of them."""
        expired, self._expired = find_expired(reading, self._expired, self._node)
        return [*expired, *self._places(reading), *self._clients(reading)]

    def _places(self, reading: Reading) -> list[LedgerCommand]:
        start = () if self._swept is None else (self._swept.org, self._swept.vault + 1)
        rows = reading.range(Range(LEDGER_PLACE, "", (), PLACES_AT_ONCE, start=start))
        self._swept = LedgerPlace(rows[-1].org, rows[-1].vault) if len(rows) == PLACES_AT_ONCE else None
        orgs = reading.find(LEDGER_ORG, sorted({(row.org,) for row in rows}))
        blocks = reading.find(LEDGER_BLOCK, [(row.org, row.vault, row.freed + 1) for row in rows])
        found: list[LedgerCommand] = []
        for row in rows:
            org, block = orgs.get((row.org,)), blocks.get((row.org, row.vault, row.freed + 1))
            if org is not None and block is not None and may_be_freed(org, row, block):
                found.append(FreePlace(LedgerPlace(row.org, row.vault), _upto(reading, org, row)))
        return found

    def _clients(self, reading: Reading) -> list[LedgerCommand]:
        start = () if self._thinned is None else (self._thinned + 1,)
        orgs: Sequence[OrgRow] = reading.range(Range(LEDGER_ORG, "", (), PLACES_AT_ONCE, start=start))
        self._thinned = orgs[-1].org if len(orgs) == PLACES_AT_ONCE else None
        found: list[LedgerCommand] = []
        for org in orgs:
            if org.client_cut > 0:
                gone = Range(LEDGER_STREAM, "seen", (org.org,), FREED_STREAMS, stop=(org.client_cut,))
                keys = reading.keys(gone)
                if keys:
                    found.append(ForgetStreams(org.org, tuple((key[1], key[2]) for key in keys)))
        return found


def _making(command: OpenTerm | CreateOrg | CreateVault) -> tuple[Lock, ...]:
    """The lock of a creation key, which belongs to no organization."""
    return (Lock(CREATION),) if not isinstance(command, OpenTerm) and command.key else ()


def _upto(reading: Reading, org: OrgRow, row: PlaceRow) -> int:
    """The height up to which one step frees a place: limited by blocks and bytes, but at least one block."""
    size = 0
    upto = row.freed
    for block in reading.range(Range(LEDGER_BLOCK, "", (row.org, row.vault), FREED_BLOCKS, start=(row.freed + 1,))):
        size += block.size
        if not may_be_freed(org, row, block) or (size > FREED_BYTES and upto > row.freed):
            break
        upto = block.height
    return upto


def _org_of(command: LedgerCommand) -> int:
    if isinstance(command, WriteMany):
        return command.writes[0].write.place.org
    if isinstance(command, WriteCommand):
        return command.write.place.org
    if isinstance(command, ChangeVault | FreePlace | ExpireEntities):
        return command.place.org
    assert isinstance(command, ChangeOrg | ForgetStreams)
    return command.org


_NEEDS: Mapping[type, Callable[[Any], Needs]] = {
    CreateOrg: create_org_needs,
    CreateVault: create_vault_needs,
    ChangeOrg: change_needs,
    ChangeVault: change_needs,
    OpenTerm: open_needs,
    FreePlace: free_needs,
    ForgetStreams: forget_needs,
}

_DECISIONS: Mapping[type, Callable[[View, Any, LedgerPolicy, Now], DecisionResult]] = {
    CreateOrg: create_org,
    CreateVault: create_vault,
    ChangeOrg: lambda view, command, policy, now: change_org(view, command, now),
    ChangeVault: lambda view, command, policy, now: change_vault(view, command, now),
    OpenTerm: lambda view, command, policy, now: open_term(view, command),
    FreePlace: lambda view, command, policy, now: free_place(view, command),
    ForgetStreams: lambda view, command, policy, now: forget_streams(view, command),
}
