"""The commands of maintenance: promotion, leases after an outage, and retention."""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.surfaces.jobs.tables import JobExpiryRow


class PromoteJobs(NamedTuple):
    """Count scheduled jobs that are ready as queued, and count jobs that were not counted yet."""

    most: int
    until: int
    """Jobs that become ready after this time are ignored; usually the current time."""


class CancelMembers(NamedTuple):
    """Cancel some of the members of a group that have not ended, in the order of their ids."""

    group: bytes
    behind: bytes
    """Members up to this id have been asked before."""
    most: int


class MembersCancelled(NamedTuple):
    """The answer: the last id that was asked; None if no further members have to be."""

    last: bytes | None
    notes: tuple[Any, ...] = ()


class ReapLeases(NamedTuple):
    """End expired leases, and fail jobs that waited too long.

    The command does nothing after the steady time `until`: a command that an outage delayed must not reap leases
    whose heartbeats were delayed by the same outage.
    """

    most: int
    until: int


class RenewLeases(NamedTuple):
    """Extend these leases by an outage without heartbeats, or restart them."""

    ids: tuple[bytes, ...]
    since: int | None
    """The steady time at which the outage began; None if unknown, as after a start: the leases then restart."""


class ForgetRecords(NamedTuple):
    """Delete expired keys."""

    keys: tuple[JobExpiryRow, ...]
    are_generated: bool = False


class JobRemains(NamedTuple):
    """A job whose retention is over, and the keys of rows that are deleted with it."""

    id: bytes
    steps: tuple[bytes, ...] = ()
    aliases: tuple[tuple[bytes, bytes], ...] = ()
    """Principals and keys."""
    members: tuple[bytes, ...] = ()
    children: tuple[bytes, ...] = ()
    """The names of children."""
    is_last: bool = True
    """Whether the job itself is deleted too, because no further rows belong to it."""


class ForgetJobs(NamedTuple):
    """Delete jobs whose retention is over, with the rows that belong to them."""

    jobs: tuple[JobRemains, ...]


class ForgetClaims(NamedTuple):
    """Delete named claims whose leases have ended."""

    keys: tuple[tuple[bytes, bytes], ...]
