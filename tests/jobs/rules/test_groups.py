"""Groups and children: when the job that waits becomes ready, exactly once, and who may be a member."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from semel.surfaces.jobs.commands import (
    CancelJob,
    CloseGroup,
    DeferJob,
    GroupPlace,
    JobAdmitted,
    JobKeyCollision,
    JobLease,
    JobRefused,
    RequeueJob,
)
from semel.surfaces.jobs.limits import MAX_MEMBERS, MAX_NESTING
from semel.surfaces.jobs.maintenance_commands import CancelMembers, MembersCancelled, ReapLeases
from semel.surfaces.jobs.reading import members_page, unsettled_groups
from semel.surfaces.jobs.tables import JOB, JOB_CHILD, JOB_GROUP, JOB_MEMBER, JobGroupRow
from tests.jobs.rig import FOR_EVER, HOUR_MS, OPEN, Rig, done, draft, failed


def admitted(rig: Rig, place: GroupPlace | None, queue: str = "q", **fields: object) -> JobAdmitted:
    [told] = rig.submit([draft(queue, place=place, **fields)])  # type: ignore[arg-type]
    assert isinstance(told, JobAdmitted), told
    return told


def refused(rig: Rig, place: GroupPlace, **fields: object) -> str:
    [told] = rig.submit([draft(place=place, **fields)])  # type: ignore[arg-type]
    assert isinstance(told, JobRefused), told
    return told.refusal.name


def join(rig: Rig, size: int = 0, *, cancels: bool = False) -> bytes:
    """The id of a join, in a queue of its own."""
    return admitted(rig, GroupPlace(joins=True, size=size, cancels=cancels), "join").job.id


def members(rig: Rig, group: bytes, count: int) -> list[bytes]:
    return [admitted(rig, GroupPlace(group)).job.id for _ in range(count)]


def group_row(rig: Rig) -> JobGroupRow:
    [row] = rig.rows(JOB_GROUP)
    found: JobGroupRow = row
    return found


def is_ready(rig: Rig) -> bool:
    """Whether the join can be claimed; it is, then."""
    return len(rig.claim("join", most=9)) == 1


def cancel_all(rig: Rig, most: int = 100) -> int:
    """What maintenance does with marked groups: the number of commits."""
    commits = 0
    for group in rig.read(lambda reading: unsettled_groups(reading, 9)):
        behind: bytes | None = b""
        while behind is not None:
            told: MembersCancelled = rig.do(CancelMembers(group, behind, most))
            behind, commits = told.last, commits + 1
    return commits


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_join_is_ready_when_as_many_members_as_declared_have_ended(size: int) -> None:
    rig = Rig()
    group = join(rig, size)
    members(rig, group, size)
    assert refused(rig, GroupPlace(group)) == "group_closed"
    for lease in rig.claim("q", most=size):
        assert not is_ready(rig)
        rig.do(done(lease))
    assert is_ready(rig)
    assert not is_ready(rig)
    rig.check_counts()


def test_members_that_end_before_all_were_submitted_do_not_make_the_join_ready() -> None:
    rig = Rig()
    group = join(rig, 2)
    members(rig, group, 1)
    rig.do(done(rig.claim("q")[0]))
    assert not is_ready(rig)
    members(rig, group, 1)
    rig.do(done(rig.claim("q")[0]))
    assert is_ready(rig)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_open_group_is_closed_by_a_call(count: int) -> None:
    rig = Rig()
    group = join(rig)
    members(rig, group, count)
    for lease in rig.claim("q", most=9):
        rig.do(done(lease))
    assert not is_ready(rig)
    for _ in range(2):
        assert rig.do(CloseGroup(group, b"ann", False)).group.is_closed
    assert refused(rig, GroupPlace(group)) == "group_closed"
    assert is_ready(rig)
    assert not is_ready(rig)


def end_by_failure(rig: Rig, lease: JobLease) -> None:
    rig.do(failed(lease))


def end_by_cancel(rig: Rig, lease: JobLease) -> None:
    rig.do(CancelJob(lease.job.id, b"ann", False, True))


def end_by_defer(rig: Rig, lease: JobLease) -> None:
    rig.do(CancelJob(lease.job.id, b"ann", False, False))
    rig.do(DeferJob(lease.job.id, lease.token, 0, b"d"))


def end_by_reap(rig: Rig, lease: JobLease) -> None:
    rig.world.pass_ms(2_000)
    rig.do(ReapLeases(10, FOR_EVER))


@pytest.mark.parametrize("end", [end_by_failure, end_by_cancel, end_by_defer, end_by_reap])
def test_every_end_of_a_member_counts(end: object) -> None:
    rig = Rig()
    group = join(rig, 1)
    admitted(rig, GroupPlace(group), max_attempts=1)
    end(rig, rig.claim("q")[0])  # type: ignore[operator]
    assert (group_row(rig).ended, group_row(rig).failed) == (1, 1)
    assert is_ready(rig)


def test_a_reap_of_many_members_of_many_groups_is_one_decision() -> None:
    rig = Rig()
    for _ in range(60):
        admitted(rig, GroupPlace(join(rig, 1)), max_attempts=1)
    assert len(rig.claim("q", most=60)) == 60
    rig.world.pass_ms(2_000)
    assert rig.do(ReapLeases(100, FOR_EVER)).number == 60
    assert len(rig.claim("join", most=100)) == 60


def test_a_member_that_is_queued_again_has_not_ended() -> None:
    rig = Rig()
    group = join(rig, 2)
    members(rig, group, 2)
    first, second = rig.claim("q", most=2)
    rig.do(failed(first))
    rig.do(RequeueJob(first.job.id, "x"))
    assert (group_row(rig).ended, group_row(rig).failed) == (0, 0)
    rig.do(done(second))
    assert not is_ready(rig)
    rig.do(done(rig.claim("q")[0]))
    assert is_ready(rig)
    assert (group_row(rig).ended, group_row(rig).failed) == (2, 0)


def test_a_join_that_was_cancelled_is_not_ready_and_takes_no_members() -> None:
    rig = Rig()
    group = join(rig, 2)
    members(rig, group, 1)
    rig.do(CancelJob(group, b"ann", False, False))
    assert refused(rig, GroupPlace(group)) == "group_closed"
    rig.do(done(rig.claim("q")[0]))
    rig.do(RequeueJob(group, "x"))
    assert not is_ready(rig), "one member is missing"
    rig.do(CloseGroup(group, b"ann", False))
    assert is_ready(rig)


def test_only_the_owner_adds_members_closes_and_cancels() -> None:
    rig = Rig()
    group = join(rig)
    assert refused(rig, GroupPlace(group), principal="bob") == "not_found"
    assert rig.do(CloseGroup(group, b"bob", False)).refusal.name == "not_found"
    assert rig.do(CloseGroup(group, b"bob", True)).group.is_closed


def test_what_is_no_join_has_no_members() -> None:
    rig = Rig()
    alone = admitted(rig, None).job.id
    assert refused(rig, GroupPlace(alone)) == "not_found"
    assert refused(rig, GroupPlace(b"\0" * 16)) == "not_found"
    assert rig.do(CloseGroup(alone, b"ann", False)).refusal.name == "not_found"


def test_the_key_of_a_member_comes_first() -> None:
    rig = Rig()
    group = join(rig, 1)
    first = admitted(rig, GroupPlace(group), key="k")
    again = admitted(rig, GroupPlace(group), key="k")
    assert (again.rule, again.job.id) == ("J3", first.job.id)
    assert group_row(rig).members == 1


# -- cancellation of the others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_first_failure_cancels_the_others(most: int) -> None:
    rig = Rig()
    group = join(rig, 9, cancels=True)
    members(rig, group, 6)
    first, second = rig.claim("q", most=2)
    rig.do(failed(first))
    assert refused(rig, GroupPlace(group)) == "group_closed"
    assert cancel_all(rig, most) == {1: 6, 2: 3, 100: 1}[most]
    assert cancel_all(rig) == 0
    assert (group_row(rig).members, group_row(rig).ended, group_row(rig).failed) == (6, 5, 5)
    assert not is_ready(rig), "one still runs"
    rig.do(done(second))
    assert cancel_all(rig) == 0
    assert is_ready(rig)
    assert (group_row(rig).ended, group_row(rig).failed) == (6, 5)
    rig.check_counts()


def test_a_group_is_deleted_by_the_cancellation_of_its_join_with_its_members() -> None:
    rig = Rig()
    group = join(rig)
    ids = members(rig, group, 3)
    rig.do(CancelJob(group, b"ann", False, False, with_members=True))
    cancel_all(rig)
    assert {job.id: job.reason for job in rig.rows(JOB)} == dict.fromkeys([group, *ids], b"cancelled")


# -- children ----------------------------------------------------------------------------------------------------------


def parent(rig: Rig, **fields: object) -> JobLease:
    admitted(rig, None, "parent", **fields)
    [lease] = rig.claim("parent")
    return lease


def child(lease: JobLease, name: str) -> GroupPlace:
    return GroupPlace(lease.job.id, lease.token, name)


def wait(rig: Rig, lease: JobLease) -> None:
    rig.do(DeferJob(lease.job.id, lease.token, 0, b"d", waits_children=True))


def test_a_child_is_one_over_all_attempts_of_its_parent() -> None:
    rig = Rig()
    lease = parent(rig)
    first = admitted(rig, child(lease, "a"))
    assert first.rule == "J1"
    again = admitted(rig, child(lease, "a"))
    assert (again.rule, again.job.id) == ("J3", first.job.id)
    rig.world.pass_ms(2_000)
    rig.do(ReapLeases(10, FOR_EVER))
    [later] = rig.claim("parent")
    assert admitted(rig, child(later, "a")).job.id == first.job.id
    assert admitted(rig, child(lease, "a")).job.id == first.job.id, "a known child is answered without the lease"
    assert refused(rig, child(lease, "b")) == "lease_lost"
    assert admitted(rig, child(later, "b")).job.id != first.job.id
    [collision] = rig.submit([draft(place=child(later, "a"), payload="other")])
    assert isinstance(collision, JobKeyCollision)
    assert len(rig.rows(JOB_CHILD)) == 2


def test_a_child_belongs_to_the_owner_of_its_parent() -> None:
    rig = Rig()
    lease = parent(rig)
    assert admitted(rig, child(lease, "a"), principal="workers").job.principal == b"ann"
    rig.check_counts()


def test_a_parent_waits_until_its_children_have_ended_and_is_ready_once() -> None:
    rig = Rig()
    lease = parent(rig)
    for name in ("a", "b"):
        admitted(rig, child(lease, name))
    wait(rig, lease)
    for one in rig.claim("q", most=2):
        assert rig.claim("parent") == ()
        rig.do(done(one))
    [again] = rig.claim("parent")
    assert (again.job.id, again.job.attempt, again.job.deferrals) == (lease.job.id, 1, 1)
    admitted(rig, child(again, "c"))
    wait(rig, again)
    assert rig.claim("parent") == ()
    rig.do(done(rig.claim("q")[0]))
    assert len(rig.claim("parent")) == 1
    rig.check_counts()


@pytest.mark.parametrize("has_children", [False, True])
def test_a_parent_whose_children_have_ended_does_not_wait(has_children: bool) -> None:
    rig = Rig()
    lease = parent(rig)
    if has_children:
        admitted(rig, child(lease, "a"))
        rig.do(done(rig.claim("q")[0]))
    wait(rig, lease)
    assert len(rig.claim("parent")) == 1


def test_a_parent_that_goes_on_does_not_wait_for_its_children() -> None:
    rig = Rig()
    lease = parent(rig)
    admitted(rig, child(lease, "a"))
    rig.do(done(lease))
    rig.do(done(rig.claim("q")[0]))
    assert group_row(rig)[3:7] == (1, 1, 0, 0)


# -- limits and retention ----------------------------------------------------------------------------------------------


def test_groups_are_nested_up_to_a_limit() -> None:
    rig = Rig()
    place = GroupPlace(joins=True)
    for _ in range(MAX_NESTING):
        place = GroupPlace(admitted(rig, place).job.id, joins=True)
    last = admitted(rig, place).job.id
    assert refused(rig, GroupPlace(last)) == "too_large"


def test_a_group_has_members_up_to_a_limit() -> None:
    rig = Rig()
    group = join(rig)
    rig.submit(draft(place=GroupPlace(group)) for _ in range(MAX_MEMBERS))
    assert refused(rig, GroupPlace(group)) == "too_large"
    page = rig.read(lambda reading: members_page(reading, group, None, 1_000))
    assert (len(page.members), page.next is not None) == (1_000, True)


def seen(rig: Rig, group: bytes, limit: int) -> Iterable[bytes]:
    after: bytes | None = None
    while True:
        page = rig.read(lambda reading, after=after: members_page(reading, group, after, limit))  # type: ignore[misc]
        yield from (row.id for row, _ in page.members)
        after = page.next
        if after is None:
            return


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_members_are_listed_page_by_page(limit: int) -> None:
    rig = Rig()
    group = join(rig)
    assert members(rig, group, 6) == list(seen(rig, group, limit))


def test_members_are_kept_until_their_join_has_ended_and_all_rows_go_with_it() -> None:
    rig = Rig(OPEN._replace(retention_ms=0))
    group = join(rig)
    members(rig, group, 3)
    for lease in rig.claim("q", most=3):
        rig.do(done(lease))
    rig.world.pass_ms(10 * HOUR_MS)
    rig.sweep()
    assert len(rig.rows(JOB)) == 4
    rig.do(CloseGroup(group, b"ann", False))
    [lease] = rig.claim("join")
    rig.do(done(lease))
    rig.world.pass_ms(10 * HOUR_MS)
    rig.sweep()
    assert (rig.rows(JOB), rig.rows(JOB_GROUP), rig.rows(JOB_MEMBER)) == ([], [], [])


def test_the_rows_of_many_members_go_over_several_sweeps() -> None:
    rig = Rig(OPEN._replace(retention_ms=0))
    lease = parent(rig, lease_ms=HOUR_MS)
    rig.submit(draft(place=child(lease, f"c{number}")) for number in range(1_100))
    rig.do(done(lease))
    while leases := rig.claim("q", most=100):
        for one in leases:
            rig.do(done(one))
    rig.world.pass_ms(2 * HOUR_MS)
    rig.sweep()
    for table in (JOB, JOB_GROUP, JOB_MEMBER, JOB_CHILD):
        assert rig.rows(table) == []
