"""Consumer groups in this process: the rules on a store in memory, with a clock that the test moves."""

from __future__ import annotations

import itertools
import json
from typing import Any

from semel.engine.batch import run
from semel.engine.clock import DecisionClock
from semel.engine.contract import Contract, Write
from semel.engine.group_commit import QueuedWrite, SilentObserver
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.kernel.keys import pack
from semel.store.memory import MemoryStore
from semel.surfaces.epoch_raise import Epochs, RaiseEpoch
from semel.surfaces.events.commands import EventItem, EventPrune, EventSubmit
from semel.surfaces.events.contract import Events
from semel.surfaces.events.group_contract import EventConsumers
from semel.surfaces.events.group_reading import PlannedFetch, group_state, plan_fetch
from semel.surfaces.events.rules.event_log import digest
from semel.surfaces.events.rules.group_commands import (
    GroupCreate,
    GroupExtend,
    GroupFetch,
    GroupFetched,
    GroupLimits,
    GroupReset,
    GroupSettle,
    ParkedMove,
)
from semel.surfaces.events.rules.group_state import GroupDefinition, GroupState
from semel.surfaces.events.rules.partitions import checked
from semel.surfaces.events.rules.snapshots import SnapshotLimits
from semel.surfaces.events.tables import EVENT
from semel.surfaces.events.wire.snake_case import event_payload
from semel.surfaces.schema import TABLES
from tests.engine.toy import ToyWorld

LEASE_MS = 1_000
STRICT = GroupDefinition(("a", "b", "c"), True, LEASE_MS, 3, 20, 5, 5, "beginning")
UNORDERED = STRICT._replace(is_strict=False)
GROUP = b"g"


class GroupRig:
    """One store with one group; every call is one transaction."""

    def __init__(self, definition: GroupDefinition = STRICT, snapshot_limits: SnapshotLimits | None = None) -> None:
        self.world = ToyWorld()
        self.store = MemoryStore(TABLES, self.world.wall_ms)
        self.clock = DecisionClock(self.world, SilentObserver())
        self.soft = SoftChanges()
        self._around = Surroundings(
            store=self.store,
            soft=self.soft,
            timekeeper=self.clock,
            observer=SilentObserver(),
            error_id=lambda: "fault",
            is_admitted=lambda order: False,
            reach=lambda point: None,
        )
        self._log = Events()
        self._consumers = EventConsumers(GroupLimits(), snapshot_limits or SnapshotLimits())
        self._numbers = itertools.count(1)
        self.definition = definition
        self.execute(GroupCreate(GROUP, definition, b"owner", b"secret"))

    def limit_snapshots(self, limits: SnapshotLimits) -> None:
        """Begin again with other settings."""
        self._consumers = EventConsumers(GroupLimits(), limits)

    def execute(self, command: Any, contract: Contract | None = None) -> Any:
        """Decide one command, and return its answer."""
        done = run(self._around, [QueuedWrite(Write(contract or self._consumers, command))])
        assert not done.failed, done.failed
        [(_, outcome)] = done.decided
        return outcome.answer

    def submit(self, *names: str) -> int:
        """Commit an event in these partitions."""
        name = f"e{next(self._numbers)}"
        partitions = checked(names)
        content = digest(partitions.names, {"type": "t"})
        item = EventItem(name, name.encode(), pack(name.encode()), content, partitions, None, b'{"type":"t"}')
        result = self.execute(EventSubmit((item,), "web", b""), self._log).results[0]
        committed_id: int = result.committed_id
        return committed_id

    def prune(self, count: int) -> int:
        """Delete the oldest events, and return the last that was deleted."""
        with self.store.read() as snapshot:
            rows = list(snapshot.page(EVENT, 0, None, count, 2**40))
        assert rows
        places = [(row.committed_id, tuple(name.encode() for name in json.loads(row.partitions))) for row in rows]
        self.execute(EventPrune(tuple(places)), self._log)
        last: int = rows[-1][0]
        return last

    def raise_epoch(self) -> None:
        """Begin a new epoch, as after a restore."""
        self.execute(RaiseEpoch(), Epochs())

    def reading(self) -> Reading:
        """The rows of this instant."""
        return Reading(self.store.read().__enter__(), self.soft, self.clock.now(self.world.wall_ms()))

    def plan(self, fetch_id: str, batch: int = 0, budget: int = 2**30) -> PlannedFetch:
        """The plan of a fetch."""
        planned = plan_fetch(self.reading(), GROUP, pack(fetch_id.encode()), batch, budget, event_payload)
        assert planned is not None
        return planned

    def fetch(self, fetch_id: str, batch: int = 0, member: str = "m", planned: PlannedFetch | None = None) -> Any:
        """Plan and execute a fetch; or execute one that was planned before."""
        planned = planned or self.plan(fetch_id, batch)
        if not planned.is_useful:
            state = self.state()
            return GroupFetched(b"", (), 0, 0, state.floor, state.row.epoch)
        batch = batch or self.definition.batch
        return self.execute(GroupFetch(GROUP, member.encode(), pack(fetch_id.encode()), batch, planned.plan))

    def ack(self, token: bytes, *ids: int, up_to: int = 0) -> Any:
        """Acknowledge."""
        return self.execute(GroupSettle(GROUP, token, ids, up_to, is_ack=True))

    def nack(self, token: bytes, *ids: int, up_to: int = 0, delay_ms: int = 0) -> Any:
        """Give back."""
        return self.execute(GroupSettle(GROUP, token, ids, up_to, is_ack=False, delay_ms=delay_ms))

    def extend(self, token: bytes) -> Any:
        """Extend a lease."""
        return self.execute(GroupExtend(GROUP, token))

    def reset(self, start: str, reset_id: bytes = b"") -> Any:
        """Reset the group."""
        return self.execute(GroupReset(GROUP, start, reset_id))

    def move(self, *ids: int, is_replay: bool) -> Any:
        """Replay or drop parked events."""
        return self.execute(ParkedMove(GROUP, ids, is_replay, 100))

    def state(self) -> GroupState:
        """The state of the group."""
        state = group_state(self.reading(), GROUP)
        assert state is not None
        return state


def ids_of(fetched: GroupFetched) -> list[int]:
    """The events of a fetch."""
    return [committed_id for committed_id, _ in fetched.events]
