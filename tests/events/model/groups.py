"""A model of one consumer group: random commands, lost answers and stale plans, each answer predicted.

The model knows every event of the log and what became of it, and has no cursors and no bounded state: what a group may
deliver is read off the list of all events. Every fetch that is planned and executed at once must deliver exactly that.
Answers are lost at random: the caller then repeats its call unchanged and must be told the same. Some fetches are
executed with a plan that other calls have overtaken; they may deliver less, and never anything wrong. At the end
everything is delivered and acknowledged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from semel.surfaces.events.rules.group_commands import (
    GroupBusy,
    GroupFetched,
    GroupRefused,
    GroupSettled,
    ParkedMoved,
)
from semel.surfaces.events.rules.group_state import GroupDefinition
from tests.events.rules.group_rig import GroupRig, ids_of

NEW, PENDING, ACKED, PARKED, GONE = "new", "pending", "acked", "parked", "gone"
NAMES = (("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("x",))
ROUNDS = 400


@dataclass
class Known:
    """What the model knows of an event."""

    names: frozenset[str]
    state: str = NEW
    token: bytes = b""
    due_at: int = 0
    deliveries: int = 0
    is_listed: bool = False
    """Whether it is in the list of parked events: after a reset also while it is delivered again."""


class GroupModel:
    """One run."""

    def __init__(self, seed: int, definition: GroupDefinition, resets: float = 0.005) -> None:
        self._chance = random.Random(seed)
        self._resets = resets
        self._rig = GroupRig(definition)
        self._definition = definition
        self._events: dict[int, Known] = {}
        self._leases: list[tuple[str, bytes, list[int]]] = []
        self._fetches = 0
        self._start = 0
        """Events up to here are not in the group since its last reset."""
        self.delivered = self.replayed = self.stale = self.fenced = self.parked = self.parked_again = self.lost = 0

    def run(self) -> None:
        """Random calls, then the drain."""
        calls = [self._submit, self._submit, self._fetch, self._fetch, self._stale_fetch, self._ack, self._ack]
        calls += [self._nack, self._late_ack, self._pass_time, self._repeat_fetch, self._replay, self._extend]
        for _ in range(ROUNDS):
            chance = self._chance.random()
            if chance < self._resets:
                self._reset()
            elif chance < self._resets + 0.005:
                self._raise_epoch()
            else:
                self._chance.choice(calls)()
            self._check_state()
        self._drain()

    # -- what the model says ------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        return self._rig.clock.now(self._rig.world.wall_ms()).steady_ms

    def _of_group(self) -> list[int]:
        names = frozenset(self._definition.partitions)
        return [one for one, known in self._events.items() if known.names & names and one > self._start]

    def _expected(self, batch: int) -> tuple[list[int], list[int]]:
        """The events that a fetch delivers now, and those that it parks."""
        taken: list[int] = []
        parked: list[int] = []
        blocked: set[str] = set()
        wanted = frozenset(self._definition.partitions)
        pending = [one for one in self._of_group() if self._events[one].state == PENDING]
        room = self._definition.max_parked - len(self._listed())
        for one in pending:
            known = self._events[one]
            is_free = known.due_at <= self._now and not known.names & blocked
            if is_free and 0 < self._definition.max_deliveries <= known.deliveries and len(parked) < room:
                parked.append(one)
            elif is_free and len(taken) < batch:
                taken.append(one)
            elif self._definition.is_strict:
                blocked |= known.names & wanted
        free = self._definition.max_in_flight - (len(pending) - len(parked))
        for one in (each for each in self._of_group() if self._events[each].state == NEW):
            known = self._events[one]
            if known.names & blocked or len(taken) >= batch or free <= 0:
                blocked |= (known.names & wanted) if self._definition.is_strict else set()
                continue
            taken.append(one)
            free -= 1
        return sorted(taken), parked

    def _hold(self, fetch_id: str, fetched: GroupFetched, parked: list[int]) -> None:
        """Take a delivery into the model; what it must never do is checked here."""
        for one in parked:
            self._park(self._events[one])
        ids = ids_of(fetched)
        for one, deliveries in fetched.events:
            known = self._events[one]
            assert known.state in (NEW, PENDING), f"event {one} is {known.state} and is delivered again"
            assert known.state == NEW or known.due_at <= self._now, f"event {one} is still with another member"
            if self._definition.is_strict:
                for earlier in self._of_group():
                    before = self._events[earlier]
                    if earlier < one and before.names & known.names & frozenset(self._definition.partitions):
                        assert before.state in (ACKED, PARKED) or earlier in ids, f"{one} before {earlier}"
            assert deliveries == known.deliveries + 1
            known.deliveries = deliveries
        for one in ids:
            known = self._events[one]
            known.state, known.token, known.due_at = PENDING, fetched.token, self._now + self._definition.lease_ms
        if ids:
            self._leases.append((fetch_id, fetched.token, ids))
            self.delivered += len(ids)

    def _park(self, known: Known) -> None:
        self.parked += 1
        self.parked_again += known.is_listed
        known.state, known.is_listed = PARKED, True

    def _settle(self, one: int) -> None:
        """An ack: a parked event that was delivered again after a reset leaves the list."""
        self._events[one].state, self._events[one].is_listed = ACKED, False

    def _listed(self) -> list[int]:
        return [one for one, known in self._events.items() if known.is_listed]

    def _held(self, token: bytes, ids: list[int]) -> list[int]:
        return [one for one in ids if self._is_held(token, one)]

    def _is_held(self, token: bytes, one: int) -> bool:
        known = self._events[one]
        return known.state == PENDING and known.token == token and known.due_at > self._now

    # -- calls --------------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        names = self._chance.choice(NAMES)
        self._events[self._rig.submit(*names)] = Known(frozenset(names))

    def _pass_time(self) -> None:
        self._rig.world.pass_ms(self._chance.choice((1, 10, 300, 1_001)))

    def _new_fetch(self) -> tuple[str, int]:
        self._fetches += 1
        return f"f{self._fetches}", self._chance.choice((1, 2, 5))

    def _fetch(self) -> None:
        fetch_id, batch = self._new_fetch()
        taken, parked = self._expected(batch)
        fetched = self._rig.fetch(fetch_id, batch)
        assert isinstance(fetched, GroupFetched), fetched
        assert ids_of(fetched) == taken, f"expected {taken}, got {ids_of(fetched)}"
        self._hold(fetch_id, fetched, parked)
        if taken and self._chance.random() < 0.3:
            self._repeat(fetch_id, fetched)

    def _repeat(self, fetch_id: str, fetched: GroupFetched) -> None:
        """The answer was lost: the same fetch again, perhaps after some time."""
        self._pass_time()
        again = self._rig.fetch(fetch_id)
        assert again.is_replay
        assert again.token == fetched.token
        assert ids_of(again) == self._held(fetched.token, ids_of(fetched))
        self.lost += 1

    def _repeat_fetch(self) -> None:
        if self._leases:
            fetch_id, token, ids = self._chance.choice(self._leases)
            again = self._rig.fetch(fetch_id)
            assert again.is_replay
            held = self._held(token, ids)
            assert ids_of(again) == held
            assert again.token == token or not held
            self.replayed += 1

    def _stale_fetch(self) -> None:
        """Other calls come between the plan of a fetch and its transaction."""
        fetch_id, batch = self._new_fetch()
        planned = self._rig.plan(fetch_id, batch)
        for _ in range(self._chance.randrange(1, 4)):
            self._chance.choice((self._submit, self._fetch, self._ack, self._nack, self._pass_time))()
        _, parked = self._expected(batch)
        fetched = self._rig.fetch(fetch_id, batch, planned=planned)
        if isinstance(fetched, GroupFetched):
            # An event that was not due when the plan was made is left, and blocks what is behind it.
            left = self._rig.state().pending
            self._hold(fetch_id, fetched, [one for one in parked if one not in left])
            self.stale += 1
        else:
            assert isinstance(fetched, GroupBusy)

    def _ack(self) -> None:
        lease = self._some_lease()
        if lease is None:
            return
        token, held = lease
        count = self._chance.randrange(1, len(held) + 1)
        up_to = held[count - 1]
        is_list = self._chance.random() < 0.5
        for attempt in range(self._chance.choice((1, 1, 2))):
            answer = self._rig.ack(token, *held[:count]) if is_list else self._rig.ack(token, up_to=up_to)
            assert isinstance(answer, GroupSettled), answer
            assert (answer.settled, answer.is_replay) == ((0, True) if attempt else (count, False))
        for one in held[:count]:
            self._settle(one)

    def _late_ack(self) -> None:
        """Acks of leases that may have ended are refused unless they repeat an answered ack."""
        if not self._leases:
            return
        _, token, ids = self._chance.choice(self._leases)
        ended = [one for one in ids if not self._is_held(token, one) and self._events[one].state != ACKED]
        if ended:
            answer = self._rig.ack(token, *ended)
            assert isinstance(answer, GroupRefused), answer
            assert answer.code == "lease_ended"
            self.fenced += 1

    def _nack(self) -> None:
        lease = self._some_lease()
        if lease is None:
            return
        token, held = lease
        one = self._chance.choice(held)
        delay_ms = self._chance.choice((0, 0, 500))
        back = {one}
        names = set(self._events[one].names)
        if self._definition.is_strict:
            wanted = frozenset(self._definition.partitions)
            names &= wanted
            for later in (each for each in held if each > one):
                if self._events[later].names & names:
                    back.add(later)
                    names |= self._events[later].names & wanted
        parks = len(self._listed())
        answer = self._rig.nack(token, one, delay_ms=delay_ms)
        assert isinstance(answer, GroupSettled), answer
        assert answer.settled == len(back)
        again = self._rig.nack(token, one, delay_ms=delay_ms)
        assert isinstance(again, GroupSettled)
        assert again.is_replay
        most = self._definition.max_deliveries
        for each in back:
            known = self._events[each]
            if each == one and 0 < most <= known.deliveries and parks < self._definition.max_parked:
                self._park(known)
            else:
                known.token, known.due_at = b"", self._now + delay_ms if each == one else 0
                known.deliveries -= each != one

    def _extend(self) -> None:
        lease = self._some_lease()
        if lease is not None:
            token, held = lease
            assert self._rig.extend(token).events == len(held)
            for one in held:
                self._events[one].due_at = self._now + self._definition.lease_ms

    def _replay(self) -> None:
        parked = self._listed()
        if not parked or self._chance.random() < 0.5:
            return
        pending = sum(known.state == PENDING for known in self._events.values())
        moved = self._rig.move(*parked, is_replay=True)
        assert isinstance(moved, ParkedMoved)
        assert moved.moved == min(len(parked), self._definition.max_in_flight - pending)
        for one in parked[: moved.moved]:
            known = self._events[one]
            known.is_listed = False
            if known.state == PARKED:
                known.state, known.token, known.due_at, known.deliveries = PENDING, b"", 0, 0

    def _reset(self) -> None:
        """Back to some event, twice under one id: what is behind it is delivered again. Parked events stay parked."""
        ids = list(self._events) or [0]
        start = self._chance.choice(ids)
        self._fetches += 1
        reset_id = b"r%d" % self._fetches
        assert self._rig.reset(str(start), reset_id).is_new
        assert not self._rig.reset(str(start), reset_id).is_new
        self._start = 0
        for one, known in self._events.items():
            known.state = NEW if one > start else PARKED if known.is_listed else ACKED
            known.token, known.due_at, known.deliveries = b"", 0, 0
        self._leases.clear()

    def _raise_epoch(self) -> None:
        """A restore: every lease has ended."""
        self._rig.world.pass_ms(1)
        self._rig.raise_epoch()
        for known in self._events.values():
            known.token, known.due_at = b"", 0

    def _some_lease(self) -> tuple[bytes, list[int]] | None:
        self._chance.shuffle(self._leases)
        for _, token, ids in self._leases:
            held = self._held(token, ids)
            if held:
                return token, held
        return None

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _check_state(self) -> None:
        state = self._rig.state()
        pending = {one for one, known in self._events.items() if known.state == PENDING}
        assert set(state.pending) == pending
        assert len(pending) <= self._definition.max_in_flight
        assert state.row.parked == len(self._listed())
        open_ids = [one for one in self._of_group() if self._events[one].state in (NEW, PENDING)]
        assert all(one > state.floor for one in open_ids), "everything up to the floor is settled"

    def _drain(self) -> None:
        """Time passes, and every event that is left is delivered and acknowledged."""
        for _ in range(len(self._events) * 4 + 20):
            self._rig.world.pass_ms(self._definition.lease_ms + 1)
            fetch_id, _ = self._new_fetch()
            taken, parked = self._expected(5)
            fetched = self._rig.fetch(fetch_id, 5)
            assert ids_of(fetched) == taken
            self._hold(fetch_id, fetched, parked)
            if taken:
                assert isinstance(self._rig.ack(fetched.token, up_to=taken[-1]), GroupSettled)
                for one in taken:
                    self._settle(one)
            self._check_state()
        left = [one for one in self._of_group() if self._events[one].state not in (ACKED, PARKED)]
        assert not left, f"never delivered: {left}"
