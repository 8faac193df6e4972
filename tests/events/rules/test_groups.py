"""The rules of consumer groups and snapshots, case by case, on a store in memory with a clock that stands still."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from semel.surfaces.events.group_reading import IDLE_LAG, find_snapshot, list_parked, list_snapshots
from semel.surfaces.events.limits import LEASES_KEPT
from semel.surfaces.events.rules.group_commands import (
    GroupBusy,
    GroupCreate,
    GroupDelete,
    GroupFetched,
    GroupRefused,
    GroupSettled,
)
from semel.surfaces.events.rules.group_state import (
    Fate,
    GroupState,
    PendingEvent,
    bits_of,
    definition_of,
    mask_of,
    state_of,
)
from semel.surfaces.events.rules.snapshots import SnapshotDelete, SnapshotLimits, SnapshotPut, SnapshotStored
from semel.surfaces.events.wire.snake_case import event_payload
from tests.events.rules.group_rig import GROUP, LEASE_MS, STRICT, UNORDERED, GroupRig, ids_of

A, B, C = 1, 2, 4
"""The partitions of the group, as bits."""
NOW = 100
LATER, SOONER = NOW + 1, NOW


class WalkCase(NamedTuple):
    """Pending events by (partitions, due, deliveries), and what a walk does with each."""

    about: str
    pending: tuple[tuple[int, int, int], ...]
    taken: tuple[int, ...]
    parked: tuple[int, ...] = ()
    blocked: int = 0
    is_strict: bool = True
    batch: int = 10


WALKS = [
    WalkCase("nothing is pending", (), ()),
    WalkCase("a lease that has ended", ((A, SOONER, 1),), (1,)),
    WalkCase("a lease that has not ended", ((A, LATER, 1),), (), blocked=A),
    WalkCase("unordered: a lease that has not ended", ((A, LATER, 1),), (), is_strict=False),
    WalkCase("one behind a lease", ((A, LATER, 1), (A, SOONER, 1)), (), blocked=A),
    WalkCase("unordered: one behind a lease", ((A, LATER, 1), (A, SOONER, 1)), (2,), is_strict=False),
    WalkCase("another partition", ((A, LATER, 1), (B, SOONER, 1)), (2,), blocked=A),
    WalkCase("an event of both blocks both", ((A, LATER, 1), (A | B, SOONER, 1), (B, SOONER, 1)), (), blocked=A | B),
    WalkCase("two in order", ((A, SOONER, 1), (A, SOONER, 1)), (1, 2)),
    WalkCase(
        "a full batch blocks the rest", ((A, SOONER, 1), (A, SOONER, 1), (B, SOONER, 1)), (1,), (), A | B, batch=1
    ),
    WalkCase("delivered too often", ((A, SOONER, 3), (A, SOONER, 1)), (2,), (1,)),
    WalkCase("delivered too often, but held back", ((A, LATER, 1), (A, SOONER, 3)), (), (), A),
    WalkCase("delivered too often, in flight", ((A, LATER, 3),), (), (), A),
    WalkCase("the list of parked events is full", ((A, SOONER, 3), (B, SOONER, 3)), (2,), (1,)),
]


def state(is_strict: bool = True) -> GroupState:
    rig = GroupRig((STRICT if is_strict else UNORDERED)._replace(max_parked=1))
    return rig.state()


@pytest.mark.parametrize("case", WALKS, ids=lambda case: case.about)
def test_a_walk_over_pending_events(case: WalkCase) -> None:
    group = state(case.is_strict)
    for number, (partitions, due_at, deliveries) in enumerate(case.pending, 1):
        group.pending[number] = PendingEvent(number, partitions, due_at, 7, deliveries)
    walk = group.walk(NOW, case.batch, lambda committed_id: Fate.TAKE)
    assert tuple(one.committed_id for one in walk.taken) == case.taken
    assert tuple(one.committed_id for one in walk.parked) == case.parked
    assert walk.blocked == case.blocked


def test_a_state_survives_its_row() -> None:
    group = state()
    group.pending = {5: PendingEvent(5, A | C, 9, 3, 2), 4: PendingEvent(4, B, 0, 0, 1)}
    group.cursors = [5, 4, 2**53 - 1]
    again = state_of(group.packed())
    assert (again.pending, again.cursors) == ({4: group.pending[4], 5: group.pending[5]}, group.cursors)
    assert definition_of(group.row.definition) == group.definition


def test_the_floor_is_below_everything_open() -> None:
    group = state()
    group.cursors = [9, 7, 8]
    assert group.floor == 7
    group.pending = {4: PendingEvent(4, A, 0, 0, 1)}
    assert group.floor == 3


def test_masks() -> None:
    assert mask_of(("a", "b", "c"), ("c", "x", "a")) == A | C
    assert bits_of(A | C) == [0, 2]


def test_a_lease_ends_at_its_time() -> None:
    rig = GroupRig()
    one = rig.submit("a")
    fetched = rig.fetch("f")
    rig.world.pass_ms(LEASE_MS - 1)
    assert rig.extend(fetched.token).lease_ms == LEASE_MS
    rig.world.pass_ms(LEASE_MS)
    for answer in (rig.ack(fetched.token, one), rig.nack(fetched.token, one), rig.extend(fetched.token)):
        assert isinstance(answer, GroupRefused)
        assert answer.code == "lease_ended"
    assert rig.fetch("f").events == (), "the fetch id of an ended lease delivers nothing"
    assert rig.fetch("g").events == ((one, 2),)


def test_a_plan_from_before_a_reset_is_made_again() -> None:
    rig = GroupRig()
    ids = [rig.submit("a") for _ in range(3)]
    planned = rig.plan("f")
    rig.reset(str(ids[1]))
    assert isinstance(rig.fetch("f", planned=planned), GroupBusy)
    assert ids_of(rig.fetch("f")) == ids[2:]


def test_a_plan_for_a_deleted_group_is_not_used_for_a_new_one_of_its_name() -> None:
    for partitions in (STRICT.partitions, ("c", "a")):
        rig = GroupRig()
        ids = [rig.submit("a") for _ in range(3)]
        done = rig.fetch("f", 2)
        rig.ack(done.token, *ids[:2])
        planned = rig.plan("g")
        rig.execute(GroupDelete(GROUP))
        rig.execute(GroupCreate(GROUP, STRICT._replace(partitions=partitions), b"owner", b"another secret"))
        assert isinstance(rig.fetch("g", planned=planned), GroupBusy)
        assert ids_of(rig.fetch("g")) == ids


def parked(rig: GroupRig) -> list[tuple[int, int]]:
    page = list_parked(rig.reading(), GROUP, 0, 100, 2**20, event_payload)
    assert rig.state().row.parked == len(page.rows)
    return [(row.committed_id, row.deliveries) for row in page.rows]


@pytest.mark.parametrize("is_nacked", [True, False])
def test_an_event_that_is_parked_again_after_a_reset_is_in_the_list_once(*, is_nacked: bool) -> None:
    rig = GroupRig(UNORDERED._replace(max_deliveries=1, max_parked=6))
    ids = [rig.submit("a") for _ in range(3)]
    for name in "fg":
        fetched = rig.fetch(name)
        assert ids_of(fetched) == ids
        if is_nacked:
            assert rig.nack(fetched.token, *ids).parked == 3
        else:
            rig.world.pass_ms(LEASE_MS)
            assert rig.fetch(f"later {name}").parked == 3
        assert parked(rig) == [(one, 1) for one in ids]
        assert rig.reset("beginning").is_new
    fetched = rig.fetch("h")
    assert rig.ack(fetched.token, ids[1]).settled == 1
    assert parked(rig) == [(ids[0], 1), (ids[2], 1)], "the ack has settled it"
    assert rig.move(is_replay=False).moved == 2
    assert parked(rig) == []


def test_a_replay_after_a_reset_delivers_an_event_once_and_in_its_place() -> None:
    rig = GroupRig(STRICT._replace(max_deliveries=1))
    ids = [rig.submit("a") for _ in range(3)]
    fetched = rig.fetch("f")
    rig.ack(fetched.token, ids[0])
    rig.nack(fetched.token, ids[1], ids[2])
    assert parked(rig) == [(ids[1], 1), (ids[2], 1)]
    rig.reset("beginning")
    assert rig.move(ids[2], is_replay=True).moved == 1
    assert rig.state().pending == {}, "it is delivered behind the others of its partition"
    fetched = rig.fetch("g")
    assert fetched.events == tuple((one, 1) for one in ids)
    assert rig.move(ids[1], is_replay=True).moved == 1
    assert rig.ack(fetched.token, *ids).settled == 3, "a replay does not end the lease of the same event"
    assert rig.fetch("h").events == ()
    assert parked(rig) == []


def test_a_token_of_a_lost_epoch_is_not_that_of_a_new_lease() -> None:
    """Two rigs are two histories of one group: what was lost, and what a restored backup delivers."""
    lost, restored = GroupRig(), GroupRig()
    one = lost.submit("a")
    assert restored.submit("a") == one
    late = lost.fetch("f")
    restored.world.pass_ms(1)
    restored.raise_epoch()
    fetched = restored.fetch("g", member="n")
    assert ids_of(fetched) == ids_of(late) == [one]
    refused = restored.ack(late.token, one)
    assert isinstance(refused, GroupRefused)
    assert refused.code == "lease_ended"
    assert isinstance(restored.ack(fetched.token, one), GroupSettled)


def test_two_plans_for_the_same_events_deliver_them_once() -> None:
    for definition in (STRICT, UNORDERED):
        rig = GroupRig(definition)
        ids = [rig.submit("a") for _ in range(4)]
        plans = [rig.plan(name, 2) for name in "fg"]
        assert ids_of(rig.fetch("f", 2, planned=plans[0])) == ids[:2]
        assert isinstance(rig.fetch("g", 2, planned=plans[1]), GroupBusy)


def test_a_stale_plan_delivers_nothing_past_an_event_that_must_wait() -> None:
    rig = GroupRig()
    first, both, behind = rig.submit("a"), rig.submit("a", "b"), rig.submit("b")
    stale = rig.plan("f")
    other = rig.fetch("g", 1)
    assert ids_of(other) == [first]
    assert isinstance(rig.fetch("f", planned=stale), GroupBusy)
    rig.ack(other.token, first)
    assert ids_of(rig.fetch("f", planned=stale)) == [both, behind]


def test_a_partition_that_is_cut_short_does_not_hide_another() -> None:
    rig = GroupRig()
    held = rig.submit("a")
    rig.fetch("f")
    for _ in range(3):
        rig.submit("a", "b")
    free = rig.submit("c")
    assert ids_of(rig.fetch("g", 1)) == [free]
    assert rig.state().floor == held - 1


def test_an_idle_group_follows_the_log() -> None:
    rig = GroupRig()
    last = [rig.submit("x") for _ in range(IDLE_LAG)][-1]
    before = rig.state().row
    assert rig.fetch("f").events == ()
    assert rig.state().floor == last
    assert rig.fetch("g").events == ()
    assert rig.state().row.next_lease == before.next_lease, "no lease without an event"


def test_old_receipts_are_forgotten_and_the_lease_still_counts() -> None:
    rig = GroupRig(UNORDERED._replace(max_deliveries=0))
    first = rig.submit("a")
    long_lease = rig.fetch("first")
    leases = []
    for number in range(LEASES_KEPT + 1):
        rig.submit("a")
        leases.append(rig.fetch(f"f{number}", 1))
        rig.ack(leases[-1].token, *ids_of(leases[-1]))
    assert isinstance(rig.ack(leases[-1].token, *ids_of(leases[-1])), GroupSettled), "a repetition"
    assert isinstance(rig.ack(long_lease.token, first), GroupSettled), "the lease has not ended"
    assert isinstance(rig.ack(long_lease.token, first), GroupRefused), "its receipt is gone"
    assert rig.fetch("new").events == ()


def test_pruned_events_are_told_and_counted() -> None:
    rig = GroupRig(UNORDERED)
    first, second = rig.submit("a"), rig.submit("a")
    held = rig.fetch("f", 1)
    assert held.pruned_to == 0
    pruned_to = rig.prune(2)
    assert pruned_to == second
    third = rig.submit("a")
    rig.nack(held.token, first)
    fetched = rig.fetch("g")
    assert (ids_of(fetched), fetched.pruned_to) == ([third], pruned_to)
    assert rig.fetch("g").pruned_to == pruned_to, "the repetition tells it too"
    assert rig.state().row.pruned_events == 1
    rig.submit("a")
    assert rig.fetch("h").pruned_to == 0, "it is told once"


def test_an_epoch_ends_leases_and_keeps_the_floor() -> None:
    rig = GroupRig()
    ids = [rig.submit("a") for _ in range(3)]
    done = rig.fetch("f", 1)
    rig.ack(done.token, ids[0])
    held = rig.fetch("g", 1)
    rig.world.pass_ms(1)
    rig.raise_epoch()
    new = rig.submit("a")
    assert new > ids[-1] + 1
    late = rig.ack(held.token, ids[1])
    assert isinstance(late, GroupRefused)
    assert late.code == "lease_ended"
    fetched = rig.fetch("h")
    assert fetched.events == ((ids[1], 2), (ids[2], 1), (new, 1))
    assert fetched.epoch > 0
    assert rig.state().floor == ids[0]
    lost = rig.reset(str(ids[-1] + 1))
    assert isinstance(lost, GroupRefused)
    assert (lost.code, dict(lost.facts)["agreed_committed_id"]) == ("reset", ids[-1])


def test_a_plan_keeps_to_its_bytes() -> None:
    rig = GroupRig()
    ids = [rig.submit("a") for _ in range(4)]
    planned = rig.plan("f", budget=250)
    assert ids_of(rig.fetch("f", planned=planned)) == ids[:2]
    assert set(planned.texts) == set(ids[:2])
    one = rig.plan("g", budget=1)
    assert isinstance(rig.fetch("g", planned=one), GroupFetched | GroupBusy)


def put(rig: GroupRig, at: int, body: bytes = b"x", owner: bytes = b"o", name: bytes = b"a") -> object:
    return rig.execute(SnapshotPut(name, at, body, body * 2, b"text/plain", owner))


def test_snapshots_keep_the_newest_and_count_their_owners() -> None:
    rig = GroupRig(snapshot_limits=SnapshotLimits(kept=2, snapshots=3, snapshots_each=2))
    ids = [rig.submit("a") for _ in range(4)]
    assert put(rig, ids[1]) == SnapshotStored(ids[1])
    assert put(rig, ids[1]) == SnapshotStored(ids[1], is_replay=True)
    assert put(rig, ids[2]) == SnapshotStored(ids[2])
    assert put(rig, ids[0]) == SnapshotStored(ids[0], is_superseded=True)
    assert put(rig, ids[3]) == SnapshotStored(ids[3]), "it takes the place of the owner's oldest"
    assert [row.committed_id for row in list_snapshots(rig.reading(), b"a", 10)] == [ids[3], ids[2]]
    assert find_snapshot(rig.reading(), b"a", ids[1]) is None
    full = put(rig, ids[3], name=b"b")
    assert isinstance(full, GroupRefused)
    assert put(rig, ids[3], name=b"b", owner=b"p") == SnapshotStored(ids[3])
    assert isinstance(put(rig, ids[3], name=b"c", owner=b"p"), GroupRefused), "the limit of all"
    assert rig.execute(SnapshotDelete(b"a", ids[3])).was_there
    assert put(rig, ids[3], name=b"c", owner=b"p") == SnapshotStored(ids[3])


def test_fewer_snapshots_are_kept_when_the_setting_is_lowered() -> None:
    rig = GroupRig(snapshot_limits=SnapshotLimits(kept=4, snapshots_each=5))
    ids = [rig.submit("a") for _ in range(6)]
    for at in ids[:4]:
        assert put(rig, at) == SnapshotStored(at)
    rig.limit_snapshots(SnapshotLimits(kept=2, snapshots_each=2))
    assert put(rig, ids[1], b"other") != SnapshotStored(ids[1])
    assert put(rig, ids[4]) == SnapshotStored(ids[4]), "four make room for it"
    assert [row.committed_id for row in list_snapshots(rig.reading(), b"a", 10)] == [ids[4], ids[3]]
    assert rig.execute(SnapshotDelete(b"a", ids[3])).was_there
    assert put(rig, ids[5]) == SnapshotStored(ids[5]), "the count of the owner is right"
    assert isinstance(put(rig, ids[5], name=b"b"), GroupRefused)


def test_a_snapshot_of_a_lost_epoch_is_refused() -> None:
    rig = GroupRig()
    one = rig.submit("a")
    rig.world.pass_ms(1)
    rig.raise_epoch()
    lost = put(rig, one + 1)
    assert isinstance(lost, GroupRefused)
    assert lost.code == "reset"
    assert put(rig, one) == SnapshotStored(one)
