"""The import plan: which records are new, which exist already, and which conflict.

A key that is there is left alone. So is a record whose job id is that of another job here, or of the same one with
another end: an id stands for one job for good. A job that was run here since it was imported is the same one still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.cli.importing.record import Record
from semel.contracts.jobs.commands import ImportedRecord
from semel.contracts.jobs.ids import REQUEST_BYTES, job_name, parse_foreign, parse_job
from semel.contracts.jobs.reading import of_request
from semel.contracts.jobs.rules.integrity import digest_of
from semel.contracts.jobs.tables import IMPORTED, JOB, JOB_NAME, JOB_RECORD, JobRecordRow, JobRow
from semel.kernel.keys import pack
from semel.store.protocol import Snapshot

LOOKED_UP_AT_ONCE = 500


class ImportPlan(NamedTuple):
    """The import plan."""

    new: list[ImportedRecord]
    unfinished: int
    """Those of the new ones whose jobs had not ended."""
    new_ids: int
    """Those of the new ones whose job ids cannot be kept."""
    known: int
    taken: list[int]
    """The lines of keys that were used for another payload here."""
    ids_taken: list[int]
    """The lines of job ids that belong to another job here, or to another end of it."""


class _Here(NamedTuple):
    """The rows of a store that concern some records."""

    records: Mapping[bytes, JobRecordRow]
    """Live records of keys."""
    jobs: Mapping[str, JobRow]
    """Jobs by their ids: those that the records name, and those of their keys."""
    requests: frozenset[bytes]
    """The bytes of request ids that are in use."""


def plan_of(snapshot: Snapshot, records: list[Record], principal: str) -> ImportPlan:
    """Judge every record of a file."""
    planner = _Planner(principal)
    for start in range(0, len(records), LOOKED_UP_AT_ONCE):
        some = records[start : start + LOOKED_UP_AT_ONCE]
        here = _look(snapshot, some, principal.encode())
        for record in some:
            planner.judge(record, here)
    return planner.plan


class _Planner:
    """Makes the plan, record after record."""

    def __init__(self, principal: str) -> None:
        self._principal = principal
        self._names: set[str] = set()
        self._requests: set[bytes] = set()
        self._plan = ImportPlan([], 0, 0, 0, [], [])

    @property
    def plan(self) -> ImportPlan:
        """So far."""
        return self._plan

    def judge(self, record: Record, here: _Here) -> None:
        """New, known, or in the way."""
        row = here.records.get(pack(record.key.encode()))
        job = None if record.job is None else here.jobs.get(record.job)
        if row is not None and row.fingerprint != record.payload_hash:
            self._plan.taken.append(record.line)
        elif record.job in self._names or (job is not None and not self._is_same(record, job)):
            self._plan.ids_taken.append(record.line)
        elif row is not None or job is not None:
            self._plan = self._plan._replace(known=self._plan.known + 1)
        else:
            self._take(record, here)

    def _is_same(self, record: Record, job: JobRow) -> bool:
        """Whether this job is the one of the record: of the same key, and with the same end unless it has run here."""
        if (job.principal, job.key) != (self._principal.encode(), pack(record.key.encode())):
            return False
        return job.kind != IMPORTED or job.report == digest_of(job.id, record.ok, record.value)

    def _take(self, record: Record, here: _Here) -> None:
        request = record.request
        if request in here.requests or request in self._requests or self._is_name_taken(record, here):
            record = record._replace(request=None)
        made = _imported(record, self._principal)
        self._names.add(job_name(made.id))
        self._requests.add(made.id[:REQUEST_BYTES])
        self._plan.new.append(made)
        self._plan = self._plan._replace(
            unfinished=self._plan.unfinished + record.is_unfinished, new_ids=self._plan.new_ids + record.has_odd_job
        )

    def _is_name_taken(self, record: Record, here: _Here) -> bool:
        """Whether the id that the job would get from its request id is that of another one."""
        if record.job is not None or record.request is None:
            return False
        name = job_name(record.request)
        return name in here.jobs or name in self._names


def _look(snapshot: Snapshot, records: Sequence[Record], owner: bytes) -> _Here:
    found = snapshot.find(JOB_RECORD, [(owner, pack(record.key.encode())) for record in records])
    live = {key: row for (_, key), row in found.items() if snapshot.now_ms < row.expires_at}
    names = set(_names(records))
    foreign = [(name,) for name in map(parse_foreign, names) if name is not None]
    ids = {row.id for row in snapshot.find(JOB_NAME, foreign).values()}
    ids |= {job_id for job_id in map(parse_job, names) if job_id is not None}
    jobs = snapshot.find(JOB, [(job_id,) for job_id in ids]).values()
    requests = [record.request for record in records if record.request is not None]
    in_use = [keys[0][0][:REQUEST_BYTES] for keys in snapshot.keys_each(list(map(of_request, requests))) if keys]
    return _Here(live, {job_name(job.id): job for job in jobs}, frozenset(in_use))


def _names(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        if record.job is not None:
            yield record.job
        elif record.request is not None:
            yield job_name(record.request)


def _imported(record: Record, principal: str) -> ImportedRecord:
    job_id = record.id_of(principal)
    return ImportedRecord(
        principal.encode(),
        pack(record.key.encode()),
        record.payload_hash,
        job_id,
        record.created_ms,
        record.ended_ms,
        record.ok,
        record.value,
        digest_of(job_id, record.ok, record.value),
    )
