"""The express decision on plain completions: the result of `report` for a lease that is held and a small result.

Every other report is left to `report`: a failure, a repetition, a late or foreign one, a wrong checksum, a job with
links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.engine.contract import Write
from semel.engine.plain_write import PlainContract, PlainWrite
from semel.surfaces.jobs.commands import JobNote, JobReport, JobReported
from semel.surfaces.jobs.rules.completion import FINISHED, TOPIC_READY, topic_of
from semel.surfaces.jobs.rules.idempotency import key_until_of
from semel.surfaces.jobs.rules.leases import is_current
from semel.surfaces.jobs.rules.plain_submission import LOCK_NAME
from semel.surfaces.jobs.rules.plain_tally import PlainTally, row_changer
from semel.surfaces.jobs.rules.states import LeaseEnd
from semel.surfaces.jobs.tables import (
    ALONE,
    DONE,
    INLINE_BYTES,
    JOB,
    JOB_BRIEF,
    JOB_EXPIRY,
    JOB_SEAL,
    LEASED,
    LISTED_COMPLETED,
    JobExpiryRow,
    JobRow,
)

COMPLETED_NOTES = (JobNote(FINISHED, {"status": "completed"}),)
"""The notes of every plain completion."""
_new_tuple = tuple.__new__
"""Makes a named tuple in a third of the time of its constructor."""
_COMPLETED = LeaseEnd.COMPLETED.value
ENDED = (
    *("phase", "finished_at", "due_at", "ended_by", "reason", "report", "result_bytes", "result", "offered", "lease"),
    *("listed", "key_until", "progress", "beat_at"),
)
"""The columns that a completion changes. The last two are those of soft changes: a heartbeat that is not stored yet is
in the row that was loaded, and does not apply any more when the lease has ended.
"""
_DONE_ROW = row_changer(ENDED)


class PlainReport(PlainWrite):
    """One plain completion, and its caller."""

    __slots__ = ("report",)

    def __init__(self, contract: PlainContract, report: JobReport, size: int, principal: str = "") -> None:
        super().__init__(contract, LOCK_NAME, size, principal)
        self.report = report

    def full(self) -> Write:
        """The same report for the full rules."""
        return Write(self.contract, self.report, self.size)


def is_plain_report(report: JobReport) -> bool:
    """Whether a report may be plain, by its request alone."""
    return report.ok and report.token is not None and not report.flaw and len(report.value) <= INLINE_BYTES


class PlainReports:
    """Decides the completions of one batch, in their order."""

    def __init__(self, tally: PlainTally, writes: Sequence[PlainReport]) -> None:
        self._tally = tally
        self._writes = writes
        self.decided: list[tuple[PlainWrite, Any]] = []
        self.left: list[PlainWrite] = []
        self.topics: list[bytes] = []
        self._done: list[JobRow] = tally.moved.setdefault(ENDED, []) if writes else []

    def decide(self) -> None:
        """Decide each completion, or leave it to the full rules."""
        tally = self._tally
        jobs, seal = tally.rows[JOB], tally.rows[JOB_SEAL].get(ALONE)
        secret = b"" if seal is None else seal.secret
        steady_ms, ended = tally.now.steady_ms, set[bytes]()
        for one in self._writes:
            report = one.report
            job = jobs.get((report.id,))
            if job is not None and job.links:
                job = None  # its end may change further rows
            if job is None or job.phase != LEASED or report.id in ended or not is_current(secret, job, report.token):
                self.left.append(one)
                continue
            ended.add(report.id)
            ran_ms = max(0, steady_ms - job.claimed_at)
            answer = (self._end(job, report), False, COMPLETED_NOTES, ran_ms)
            self.decided.append((one, _new_tuple(JobReported, answer)))
        if ended:
            self.topics = [*map(topic_of, ended), TOPIC_READY]

    def _end(self, job: JobRow, report: JobReport) -> JobRow:
        tally = self._tally
        now_ms, policy = tally.now.ms, tally.policy
        key_until = key_until_of(job, policy, now_ms)
        expires_at = abs(key_until)
        if key_until:
            table = JOB_EXPIRY if key_until > 0 else JOB_BRIEF
            row = _new_tuple(JobExpiryRow, (expires_at, job.id, job.principal, job.key, 0))
            tally.inserts.setdefault(table, []).append(row)
        done = _DONE_ROW(
            job,
            DONE,
            now_ms,
            max(now_ms + policy.retention_ms, expires_at),
            _COMPLETED,
            b"",
            report.digest,
            len(report.value),
            report.value,
            0,
            b"",
            LISTED_COMPLETED,
            key_until,
            job.progress,
            job.beat_at,
        )
        tally.ended[job.queue] += 1
        tally.leased -= 1
        self._done.append(done)
        return done
