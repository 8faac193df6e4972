"""Jobs by their identities: a job id, the request id of the first submission, or an idempotency key.

A key is stored under its principal. A caller finds its own keys; an administrator of all queues those of every
principal, which are tried in the order of their names unless the query names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from semel.engine.reading import Reading
from semel.kernel.clock import utc_text
from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER, Verdict
from semel.server.auth.principals import Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, probe_pages
from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.table import Key
from semel.surfaces.jobs.access import is_admin, may_see
from semel.surfaces.jobs.ids import job_name, parse_job, parse_request, request_name
from semel.surfaces.jobs.rules.idempotency import key_end
from semel.surfaces.jobs.rules.states import is_done, state_of, status_of
from semel.surfaces.jobs.service import SURFACE, owner_of
from semel.surfaces.jobs.tables import JOB, JOB_RECORD, JOB_TENANT, JobRecordRow, JobRow

HINT = "Not every principal was tried: name the principal of the key with `in`."


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The job of this id, or of the submission of this request id; then the jobs of this key."""
    text = query.text
    if text is None:
        return
    for identity, job_id in (("job_id", parse_job(text)), ("request_id", parse_request(text))):
        job = None if job_id is None else reading.get(JOB, (job_id,))
        if job is not None and may_see(query.caller, job) and query.place in (None, job.principal):
            yield _found(reading, identity, job, abs(job.key_until))
    for records in _records(reading, query, budget):
        jobs = reading.find(JOB, [(record.job,) for record in records.values()])
        for _, record in sorted(records.items()):
            job = jobs.get((record.job,))
            if job is not None and reading.now.expiry_ms < key_end(record, job):
                yield _of_key(reading, record, job)


def _records(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[Mapping[Key, JobRecordRow]]:
    """The uses of the key by the principals whose keys the caller may read."""
    caller, key = query.caller, pack(query.id)
    if not caller.has(Role.READ):
        return
    own = owner_of(caller)
    if not is_admin(caller) or query.place is not None:
        if query.place in (None, own) or is_admin(caller):
            yield reading.find(JOB_RECORD, [(query.place or own, key)])
        return
    for (records,) in probe_pages(
        reading, Range(JOB_TENANT, "", (), 1), [ScopeProbe(JOB_RECORD, (key,))], budget, HINT
    ):
        yield records


def _of_key(reading: Reading, record: JobRecordRow, job: JobRow) -> FoundWrite:
    found = _found(reading, "idempotency_key", job, key_end(record, job))
    return found._replace(place=record.principal.decode(), at=record.created_at, principal=record.principal.decode())


def _found(reading: Reading, identity: str, job: JobRow, until: int) -> FoundWrite:
    name, principal = job_name(job.id), job.principal.decode()
    state = state_of(job, reading.now.expiry_ms).value
    effect = {"kind": "job", "path": f"/v1/jobs/{name}", "job_id": name, "request_id": request_name(job.id)}
    effect |= {"state": state, "queue": job.queue.decode(), "job_kind": job.kind.decode()}
    if job.finished_at:
        effect["finished_at"] = utc_text(job.finished_at)
    return FoundWrite(
        SURFACE,
        identity,
        principal,
        job.created_at,
        principal,
        effect,
        _answer(job),
        until if 0 < until < NEVER else None,
        job.id,
    )


def _answer(job: JobRow) -> dict[str, object]:
    """What a retry under the key of the job gets."""
    result = status_of(job) if is_done(job) else "in_progress"
    return {"verdict": Verdict.REPLAY.value, "status": 200, "result": result}
