"""The ledger as a contract of the engine: a lock for each organization, and one shared with the change of term.

A crash leaves every command done whole or not at all: a block, its state, its commit and its client's sequence are one
transaction of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from semel.contracts.ledger.commands import (
    ChangeOrg,
    ChangeVault,
    Command,
    ForgetStreams,
    FreePlace,
    MakeOrg,
    MakeVault,
    Open,
    WriteCommand,
)
from semel.contracts.ledger.limits import Policy
from semel.contracts.ledger.model import Place
from semel.contracts.ledger.rules.log import MAKING, REGISTRY, log_lock
from semel.contracts.ledger.rules.makings import (
    change_needs,
    change_org,
    change_vault,
    make_org,
    make_org_needs,
    make_vault,
    make_vault_needs,
)
from semel.contracts.ledger.rules.upkeep import (
    forget_needs,
    forget_streams,
    free_needs,
    free_place,
    may_be_freed,
    open_needs,
    open_term,
)
from semel.contracts.ledger.rules.write import order_of, write, write_needs
from semel.contracts.ledger.tables import LEDGER_BLOCK, LEDGER_ORG, LEDGER_PLACE, LEDGER_STREAM, OrgRow, PlaceRow
from semel.engine.contract import Order, Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock, Range

FREED_BLOCKS, FREED_BYTES, FREED_STREAMS = 250, 4 * 1024 * 1024, 500
PLACES_AT_ONCE = 100
"""Limit of organizations and places in one round of chores; the next round goes on behind them."""

Needs = Generator[Stage, View, None]


class Ledger:
    """The contract of the ledger, under one policy."""

    name = "ledger"

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._swept: Place | None = None
        self._thinned: int | None = None

    def locks(self, command: Command) -> Sequence[Lock]:
        """The organization's log; what changes the term or the list of organizations is alone."""
        if isinstance(command, Open | MakeOrg):
            return (Lock(REGISTRY), *_making(command))
        if isinstance(command, MakeVault):
            return (log_lock(command.org), Lock(REGISTRY, shared=True), *_making(command))
        return (log_lock(_org_of(command)), Lock(REGISTRY, shared=True))

    def needs(self, command: Command) -> Needs:
        """The rows that each command reads."""
        return _NEEDS[type(command)](command)

    def order(self, command: Command) -> Order | None:
        """A write with a sequence has its place in it."""
        return order_of(command) if isinstance(command, WriteCommand) else None

    def decide(self, view: View, command: Command, now: Now) -> Outcome:
        """Judge one command."""
        return _DECISIONS[type(command)](view, command, self.policy, now)

    def chores(self, reading: Reading) -> Sequence[Command]:
        """Places with blocks that may be freed, and clients that were evicted; round after round through all."""
        return [*self._places(reading), *self._clients(reading)]

    def _places(self, reading: Reading) -> list[Command]:
        start = () if self._swept is None else (self._swept.org, self._swept.vault + 1)
        rows = reading.range(Range(LEDGER_PLACE, "", (), PLACES_AT_ONCE, start=start))
        self._swept = Place(rows[-1].org, rows[-1].vault) if len(rows) == PLACES_AT_ONCE else None
        orgs = reading.find(LEDGER_ORG, sorted({(row.org,) for row in rows}))
        blocks = reading.find(LEDGER_BLOCK, [(row.org, row.vault, row.freed + 1) for row in rows])
        found: list[Command] = []
        for row in rows:
            org, block = orgs.get((row.org,)), blocks.get((row.org, row.vault, row.freed + 1))
            if org is not None and block is not None and may_be_freed(org, row, block):
                found.append(FreePlace(Place(row.org, row.vault), _upto(reading, org, row)))
        return found

    def _clients(self, reading: Reading) -> list[Command]:
        start = () if self._thinned is None else (self._thinned + 1,)
        orgs: Sequence[OrgRow] = reading.range(Range(LEDGER_ORG, "", (), PLACES_AT_ONCE, start=start))
        self._thinned = orgs[-1].org if len(orgs) == PLACES_AT_ONCE else None
        found: list[Command] = []
        for org in orgs:
            if org.client_cut > 0:
                gone = Range(LEDGER_STREAM, "seen", (org.org,), FREED_STREAMS, stop=(org.client_cut,))
                keys = reading.keys(gone)
                if keys:
                    found.append(ForgetStreams(org.org, tuple((key[1], key[2]) for key in keys)))
        return found


def _making(command: Open | MakeOrg | MakeVault) -> tuple[Lock, ...]:
    """The lock and row of a creation key: it has a lock of its own, because it is not bound to an organization."""
    return (Lock(MAKING),) if not isinstance(command, Open) and command.key else ()


def _upto(reading: Reading, org: OrgRow, row: PlaceRow) -> int:
    """The height up to which a place is freed in one step: a limit of blocks and of bytes; at least one block."""
    size = 0
    upto = row.freed
    for block in reading.range(Range(LEDGER_BLOCK, "", (row.org, row.vault), FREED_BLOCKS, start=(row.freed + 1,))):
        size += block.size
        if not may_be_freed(org, row, block) or (size > FREED_BYTES and upto > row.freed):
            break
        upto = block.height
    return upto


def _org_of(command: Command) -> int:
    if isinstance(command, WriteCommand):
        return command.write.place.org
    if isinstance(command, ChangeVault | FreePlace):
        return command.place.org
    assert isinstance(command, ChangeOrg | ForgetStreams)
    return command.org


_NEEDS: Mapping[type, Callable[[Any], Needs]] = {
    WriteCommand: write_needs,
    MakeOrg: make_org_needs,
    MakeVault: make_vault_needs,
    ChangeOrg: change_needs,
    ChangeVault: change_needs,
    Open: open_needs,
    FreePlace: free_needs,
    ForgetStreams: forget_needs,
}

_DECISIONS: Mapping[type, Callable[[View, Any, Policy, Now], Outcome]] = {
    WriteCommand: write,
    MakeOrg: make_org,
    MakeVault: make_vault,
    ChangeOrg: lambda view, command, policy, now: change_org(view, command, now),
    ChangeVault: lambda view, command, policy, now: change_vault(view, command, now),
    Open: lambda view, command, policy, now: open_term(view, command),
    FreePlace: lambda view, command, policy, now: free_place(view, command),
    ForgetStreams: lambda view, command, policy, now: forget_streams(view, command),
}
