"""One organization under the real rules, a batch at a time in this thread, beside the plainest account of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from semel.engine.generations import GENERATION
from semel.engine.group_commit import BatchResult
from semel.engine.reading import Reading
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable, Snapshot
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerLimits, LedgerPolicy
from semel.surfaces.ledger.model import CreateRelationship, Entity, LedgerPlace, Operation, SetEntity
from semel.surfaces.ledger.rules.chain import committed_of, state_key
from semel.surfaces.ledger.tables import LEDGER_BLOCK, LEDGER_BODY, TABLES
from semel.surfaces.ledger.validation import prepare, write_command
from tests.engine.rig import Desk
from tests.engine.toy import ToyWorld

T = TypeVar("T")

BEGIN = 1_760_000_000
ORG = 7001
OWN = LedgerPlace(ORG)
ROWS = 1_000_000
ROUNDS = 1_000

State = dict[bytes, Entity]


class LedgerDesk:
    """Every commit is also entered in `states`: what each place holds at each height."""

    def __init__(
        self, policy: LedgerPolicy | None = None, store: Callable[[Callable[[], int]], Any] | None = None
    ) -> None:
        self.world = ToyWorld(BEGIN * 1_000)
        self.memory = (store or partial(MemoryStore, (GENERATION, *TABLES)))(self.world.wall_ms)
        self.ledger = LedgerContract(policy)
        self.states: dict[LedgerPlace, list[State]] = {OWN: [{}]}
        self._drawn = 0
        self.open()
        self.carry_out(real.CreateOrg(b"org", (ORG,), b"", b""))

    def open(self) -> None:
        """A process of its own, with clocks of its own, on the rows as they are."""
        self.inside = Desk(self.memory, self.world)
        self.carry_out(real.OpenTerm(b"", b"secret"))

    def make_vault(self, slug: int, retain: int = 0) -> LedgerPlace:
        """A vault that keeps so many bodies."""
        self.carry_out(real.CreateVault(ORG, (slug,), retain, b"", b""))
        place = LedgerPlace(ORG, slug)
        self.states[place] = [{}]
        return place

    def command(
        self,
        place: LedgerPlace,
        *operations: Operation,
        client: bytes = b"ann",
        sequence: int | None = None,
        key: bytes = b"",
    ) -> real.WriteCommand:
        """A write under a key of its own, unless it is given a sequence or a key."""
        self._drawn += 1
        own = key or (b"" if sequence else self._drawn.to_bytes(16, "big"))
        prepared = prepare(LedgerLimits(), place, client, sequence, own, operations)
        chance = self._drawn.to_bytes(real.CHANCE_BYTES, "big")
        return write_command(LedgerLimits(), prepared, b"client:me", b"node", chance)

    def run(self, *commands: real.LedgerCommand) -> BatchResult:
        """One batch, in which nothing may fail or be put off."""
        result = self.inside.run(*commands, contract=self.ledger)
        assert not self.inside.observer.faults, self.inside.observer.faults
        assert not result.deferred
        for one, outcome in result.decided:
            if isinstance(outcome.answer, real.WriteCommitted):
                self._enter(outcome.answer.committed)
            elif isinstance(one.write.command, real.ExpireEntities) and outcome.answer.number:
                self._enter_next(one.write.command.place)
        return result

    def carry_out(self, command: real.LedgerCommand) -> Any:
        """A batch of one; its answer."""
        [(_, outcome)] = self.run(command).decided
        return outcome.answer

    def write(self, place: LedgerPlace, *operations: Operation, **identity: Any) -> Any:
        """One transaction, whatever comes of it."""
        return self.carry_out(self.command(place, *operations, **identity))

    def commit(self, place: LedgerPlace, *operations: Operation, **identity: Any) -> int:
        """One that must succeed; its height."""
        answer = self.write(place, *operations, **identity)
        assert isinstance(answer, real.WriteCommitted), answer
        return answer.committed.header.height

    def look(
        self, function: Callable[[Reading], T], through: Callable[[Snapshot], Any] = lambda snapshot: snapshot
    ) -> T:
        """Read something; `through` may stand between the reader and the rows."""
        with self.memory.read() as snapshot:
            now = self.inside.around.timekeeper.now(snapshot.now_ms)
            return function(Reading(through(snapshot), self.inside.soft, now))

    def rows(self, table: AnyTable) -> list[Any]:
        """All that are stored, by key."""
        with self.memory.read() as snapshot:
            return list(snapshot.page(table, 0, None, ROWS, 2**40))

    def pass_seconds(self, seconds: int) -> None:
        """Time passes on both clocks."""
        self.world.pass_ms(1_000 * seconds)

    def sweep(self) -> None:
        """Carry out chores until there are none."""
        for _ in range(ROUNDS):
            chores = self.look(self.ledger.chores)
            if not chores:
                return
            for chore in chores:
                self.carry_out(chore)
        raise AssertionError("chores without an end")

    def _enter_next(self, place: LedgerPlace) -> None:
        """Enter the next block of a place, of which no answer has told."""
        key = (*place, len(self.states[place]))
        [row] = [row for row in self.rows(LEDGER_BLOCK) if row[:3] == key]
        bodies = [row.operations for row in self.rows(LEDGER_BODY) if row[:3] == key]
        self._enter(committed_of(row, bodies[0] if bodies else row.operations))

    def _enter(self, committed: real.CommittedTransaction) -> None:
        header = committed.header
        heights = self.states[header.place]
        assert header.height == len(heights)
        heights.append(applied(heights[-1], committed.transaction.operations, header.height))


def applied(before: State, operations: Iterable[Operation], height: int) -> State:
    """A state after a transaction whose conditions hold."""
    after = dict(before)
    for operation in operations:
        key = state_key(operation)
        if isinstance(operation, SetEntity):
            after[key] = Entity(key, operation.value, operation.expires_at, height)
        elif isinstance(operation, CreateRelationship):
            after.setdefault(key, Entity(key, b"", 0, height))
        else:
            after.pop(key, None)
    return after
