"""The log as it is stored, once more from the beginning: into an empty store, in batches of any size.

An organization's log is its blocks and its other entries, by index. Each entry is carried out at its own logged time,
which is all that eviction goes by; so the rows that come out must not depend on how many share a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from semel.engine.batch_runner import BatchLimits
from semel.engine.contract import DecisionResult, Stage, View, Write
from semel.engine.engine import EngineLimits
from semel.engine.generations import GENERATION
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.store.memory import MemoryStore
from semel.store.protocol import Lock
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace, LedgerStatus
from semel.surfaces.ledger.rules.chain import decode_operations, request_hash, state_key
from semel.surfaces.ledger.rules.expiry import COLLECTOR
from semel.surfaces.ledger.tables import (
    ENTRY_ORG,
    ENTRY_VAULT,
    LEDGER_BLOCK,
    LEDGER_BODY,
    LEDGER_ENTRY,
    LEDGER_ORG,
    LEDGER_PLACE,
    TABLES,
    BlockRow,
    EntryRow,
)
from tests.engine.toy import ToyWorld
from tests.harness.simulation import Processes
from tests.ledger.model.leftovers import rows_of

NOTHING = real.FreePlace(LedgerPlace(1), 1)
LARGE = 10**9


class Entry(NamedTuple):
    """A command at its logged time."""

    term: int
    org: int
    number: int
    ms: int
    command: Any


def dump(store: MemoryStore) -> dict[str, list[Any]]:
    """Every row of every table of the ledger; the rate is counted by the clock, and is nothing that a log has."""
    tables = {table.name: rows_of(store, table) for table in TABLES}
    tables[LEDGER_ORG.name] = [row._replace(second=0, in_second=0) for row in tables[LEDGER_ORG.name]]
    return tables


def log_of(store: MemoryStore) -> list[Entry]:
    """What has happened, in an order in which each log and the terms rise."""
    bodies = {tuple(row[:3]): row.operations for row in rows_of(store, LEDGER_BODY)}
    terms = {(row.org, row.created_index): row.created_term for row in rows_of(store, LEDGER_PLACE) if row.vault}
    places = {(row.org, row.vault): row for row in rows_of(store, LEDGER_PLACE)}
    entries = [
        Entry(places[row.org, 0].created_term, row.org, 0, _ms(row.created_seconds, row.created_nanos), _made(row))
        for row in rows_of(store, LEDGER_ORG)
    ]
    for block in rows_of(store, LEDGER_BLOCK):
        command = _written(block, block.operations or bodies[tuple(block[:3])])
        ms = _ms(block.at_seconds, block.at_nanos)
        entries.append(Entry(block.term, block.org, block.committed_index, ms, command))
        terms[block.org, block.committed_index] = block.term
    others = sorted(rows_of(store, LEDGER_ENTRY))
    for row in others:
        # Only blocks and places have terms; what has none comes in that of the entry before it.
        terms.setdefault((row.org, row.entry), terms.get((row.org, row.entry - 1), 0))
        entries.append(
            Entry(terms[row.org, row.entry], row.org, row.entry, _ms(row.at_seconds, row.at_nanos), _settled(row))
        )
    return sorted(entries, key=lambda entry: entry[:3])


def _ms(seconds: int, nanos: int) -> int:
    return seconds * 1_000 + nanos // 1_000_000


def _made(org: Any) -> real.CreateOrg:
    return real.CreateOrg(org.name, (org.org,), b"owner", b"")


def _written(block: BlockRow, operations: bytes) -> real.WriteCommand | real.ExpireEntities:
    write = real.PreparedWrite(
        LedgerPlace(block.org, block.vault),
        block.client,
        block.sequence,
        block.key,
        decode_operations(operations),
        operations,
        request_hash(operations),
    )
    if block.client == COLLECTOR:
        return real.ExpireEntities(write.place, tuple(map(state_key, write.operations)), block.leader)
    return real.WriteCommand(write, block.actor, block.leader, block.id[-real.CHANCE_BYTES :], bool(block.with_proof))


def _settled(row: EntryRow) -> Any:
    if row.kind == ENTRY_VAULT:
        return real.CreateVault(row.org, (row.vault,), int(row.detail), b"owner", b"")
    if row.kind == ENTRY_ORG:
        changes = orjson.loads(row.detail)
        status = {"status": LedgerStatus[changes["status"]]} if "status" in changes else {}
        return real.ChangeOrg(row.org, real.OrgSettings(**(changes | status)))
    return real.ChangeVault(LedgerPlace(row.org, row.vault), LedgerStatus[row.detail.decode()])


class Timed:
    """The contract, told by each command what time it is; commands stay in their order."""

    name = "ledger"

    def __init__(self, policy: LedgerPolicy) -> None:
        self._ledger = LedgerContract(policy)

    def locks(self, command: tuple[int, Any]) -> Sequence[Lock]:
        """The ledger's."""
        return self._ledger.locks(command[1])

    def needs(self, command: tuple[int, Any]) -> Generator[Stage, View, None]:
        """The ledger's."""
        return self._ledger.needs(command[1])

    def order(self, command: tuple[int, Any]) -> None:
        """As they come."""

    def decide(self, view: View, command: tuple[int, Any], now: Now) -> DecisionResult:
        """At the logged time."""
        ms = command[0]
        return self._ledger.decide(view, command[1], Now(ms, ms, ms, ms))

    def chores(self, reading: Any) -> Sequence[Any]:
        """None."""
        return ()


def replay(log: Sequence[Entry], policy: LedgerPolicy, batch: int, terms: int) -> MemoryStore:
    """Everything in an empty store, so many entries in a batch, and as many terms as there were."""
    commands: list[tuple[int, Any]] = []
    term = 0
    for entry in log:
        commands += [(entry.ms, real.OpenTerm(b"", b"secret"))] * (entry.term - term)
        term = max(term, entry.term)
        commands.append((entry.ms, entry.command))
    commands += [(0, real.OpenTerm(b"", b"secret"))] * (terms - term)
    store = MemoryStore((GENERATION, *TABLES), lambda: 0)
    asyncio.run(_carry_out(store, Timed(policy), commands, batch))
    return store


async def _carry_out(store: MemoryStore, contract: Timed, commands: Sequence[tuple[int, Any]], batch: int) -> None:
    """The lane is held until everything waits, so that the batches are as large as they may be."""
    limits = EngineLimits(LARGE, LARGE, BatchLimits(batch, LARGE, LARGE))
    processes = Processes(store, ToyWorld(), limits)
    processes.start()
    try:
        writes = [Write(contract, command) for command in commands]
        answers = await processes.submit_all(writes, behind=Write(contract, (0, NOTHING)))
        for command, answer in zip(commands, answers, strict=True):
            assert not isinstance(answer, BaseException | Refusal | real.WriteDeclined | real.WriteReplayed), (
                command,
                answer,
            )
    finally:
        await processes.stop()


def differing(one: Mapping[str, list[Any]], other: Mapping[str, list[Any]]) -> list[str]:
    """The tables that are not the same, each with the first row that is not."""
    found = []
    for name, rows in one.items():
        if rows != other[name]:
            pairs = zip(rows, other[name], strict=False)
            first = next((pair for pair in pairs if pair[0] != pair[1]), (len(rows), len(other[name])))
            found.append(f"{name}: {first[0]} and {first[1]}")
    return found
