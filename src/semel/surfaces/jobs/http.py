"""Jobs over HTTP: `/v1/jobs` and below, and the mesh dialect under `/mesh/`.

Order of checks: method, content type and size; then the credential; then the body; then the rules. All answers on
these paths have the format of jobs, including those on credentials and faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
from prometheus_client.core import Metric

from semel.engine.contract import EngineError, FaultError, NotStoredError, OutcomeUnknownError, OverloadedError
from semel.kernel.errors import Refusal, Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.authentication import admit
from semel.server.auth.principals import AuthOutcome, Principal, UnauthorizedError
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, JSON, NO_STORE, SECURITY, Answer, header_block
from semel.server.http.body import Bodies
from semel.server.http.problem import retry_after
from semel.server.http.request import Request as HttpRequest
from semel.server.surface import RunningSurface
from semel.surfaces.jobs.admin import JobAdmin
from semel.surfaces.jobs.ids import parse_job
from semel.surfaces.jobs.limits import MAX_BODY_BYTES
from semel.surfaces.jobs.maintenance import JobMaintenance
from semel.surfaces.jobs.service import SURFACE, JobCall, JobService, make_service
from semel.surfaces.jobs.submission import JobSubmissions
from semel.surfaces.jobs.wire.fields import refusal_members
from semel.surfaces.jobs.worker_calls import WorkerCalls

MESH, PREFIX = b"/mesh/", b"/v1/jobs"
_COMMON = header_block((*SECURITY, (b"access-control-expose-headers", b"retry-after, x-request-id")))
_NO_PATH = "There is nothing at this path."

Call = Callable[[JobCall], Awaitable[Answer]]


class JobsHttp(RunningSurface):
    """The HTTP handler of jobs on one listener."""

    surface = SURFACE
    allow = b"DELETE, GET, HEAD, OPTIONS, POST, PUT"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._service: JobService = make_service(context)
        self.contract = self._service.jobs
        self._submissions = JobSubmissions(self._service)
        self._worker_calls = WorkerCalls(self._service)
        self._admin = JobAdmin(self._service)
        self._bodies = Bodies(MAX_BODY_BYTES, context.settings.max_uploads_bytes)
        self.maintenance = JobMaintenance(
            context.engine, self._service.jobs, context.world, self._service.audit_trail, self._service.long_polls
        )
        admin = self._admin
        self._fixed: dict[bytes, dict[str, Call]] = {
            b"/mesh/submit_request": {"POST": self._submissions.submit},
            b"/mesh/pull_requests": {"POST": self._worker_calls.claim},
            b"/mesh/results/submit": {"POST": self._worker_calls.mesh_result},
            b"/mesh/submit_result": {"POST": self._worker_calls.mesh_result},
            b"/v1/jobs": {"POST": self._submissions.submit, "GET": admin.list},
            b"/v1/jobs/batch": {"POST": self._submissions.submit_many},
            b"/v1/jobs/claim": {"POST": self._worker_calls.claim},
            b"/v1/jobs/lookup": {"POST": admin.lookup},
            b"/v1/jobs/dead": {"GET": admin.dead},
            b"/v1/jobs/keys/release": {"POST": admin.release},
            b"/v1/jobs/queues": {"GET": admin.queues},
            b"/v1/jobs/schedules": {"GET": admin.schedules},
        }
        self._of_a_job: dict[str, tuple[str, Callable[[bytes, JobCall], Awaitable[Answer]]]] = {
            "": ("GET", admin.read),
            "result": ("GET", admin.result),
            "cancel": ("POST", admin.cancel),
            "requeue": ("POST", admin.requeue),
            "close": ("POST", admin.close),
            "members": ("GET", admin.group_members),
            "heartbeat": ("POST", self._worker_calls.heartbeat),
            "complete": ("POST", self._worker_calls.complete),
            "fail": ("POST", self._worker_calls.fail),
            "defer": ("POST", self._worker_calls.defer),
            "steps": ("POST", self._worker_calls.step),
        }

    def common(self, request: HttpRequest) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: HttpRequest) -> Answer | None:
        """Answer one request."""
        call = self._route(request.method, request.raw_path)
        _check_head(request)
        principal = admit(self._context, request)
        request.proceed(self._answer(call, principal, request))
        return None

    def refuse(self, request: HttpRequest, error: Exception) -> Answer | None:
        """Render a refusal in the format of jobs; the mesh dialect has its own answer to a wrong token."""
        if isinstance(error, UnauthorizedError) and request.raw_path.startswith(MESH):
            return self.render(request, _mesh_unauthorized(error))
        return super().refuse(request, error)

    def render(self, request: HttpRequest, refusal: Refusal) -> Answer:
        """Render a refusal in the format of jobs; codes of the server shell are written in lower case."""
        own = refusal if refusal.code.startswith("jobs:") else refusal._replace(code=f"jobs:{refusal.code.lower()}")
        status = self._service.refused_status if own.status == 429 else own.status
        headers = [JSON, NO_STORE]
        if status in (429, 503):
            headers.append(retry_after(own))
        headers += own.headers
        if status == 413 and "field" not in own.facts:
            headers.append(CLOSE)
        return Answer(status, headers, orjson.dumps(refusal_members(own)))

    def failure(self, error: EngineError) -> Refusal:
        """The refusal for an engine error."""
        if isinstance(error, OverloadedError):
            again = "Send the same request again in a moment, with the same key."
            return Refusal("jobs:overloaded", f"{error} {again}")
        if isinstance(error, OutcomeUnknownError):
            return Refusal("jobs:not_durable", f"{error} Repeat it with the same key or the same token.")
        if isinstance(error, FaultError):
            message = f"Something went wrong here; nothing was stored. Error id {error.error_id}."
            return Refusal("jobs:internal_error", message)
        if isinstance(error, NotStoredError) and self._context.is_stopping:
            return Refusal("jobs:shutting_down", f"{error} Repeat it with the same key.")
        return Refusal("jobs:not_stored", f"{error} Send the request again.")

    def fault(self, error_id: str) -> Refusal:
        """The refusal for an internal fault."""
        return Refusal("jobs:internal_error", f"Something went wrong here; repeat it. Error id {error_id}.")

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Background tasks: the reaper, schedules and promotion."""
        return (self.maintenance.run(),)

    def stop(self) -> None:
        """End all long polls, because the server stops."""
        self._service.long_polls.stop()

    async def measure(self) -> None:
        """Read the gauges from the store."""
        await self._service.metrics.measure()

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt."""
        return self._service.metrics.replays

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged submissions by verdict."""
        return self._service.metrics.verdicts

    def collect(self) -> Iterator[Metric]:
        """The metric families of jobs."""
        return self._service.metrics.collect()

    def named(self) -> Mapping[str, float | None]:
        """The metrics of jobs by name, for the JSON form."""
        return self._service.metrics.named()

    async def _answer(self, call: Call, principal: Principal, request: HttpRequest) -> Answer:
        body = b"" if request.method in ("GET", "HEAD") else await self._bodies.read(request)
        if body is None:
            raise _too_large()
        return await call(JobCall(principal, request.fields, body, request.query, caller_of(request), request))

    def _route(self, method: str, raw_path: bytes) -> Call:
        """The call of a method and path; refuses an unknown path with 404, an unknown method with 405."""
        calls = self._fixed.get(raw_path) or self._named(raw_path)
        if calls is None:
            raise Refused("jobs:not_found", _NO_PATH)
        call = calls.get("GET" if method == "HEAD" else method)
        if call is None:
            allowed = ", ".join(sorted(calls))
            message = f"{method} is not used here, but {allowed}."
            headers = ((b"allow", allowed.encode()),)
            raise Refused("jobs:method_not_allowed", message, {"allow": allowed}, headers=headers)
        return call

    def _named(self, raw_path: bytes) -> dict[str, Call] | None:
        """The calls of a path that contains a name."""
        if not raw_path.startswith(PREFIX + b"/"):
            return None
        pieces = raw_path[len(PREFIX) + 1 :].split(b"/")
        try:
            names = [unquote_to_bytes(piece).decode() for piece in pieces]
        except UnicodeDecodeError:
            return None
        if len(names) == 2 and names[0] in ("queues", "schedules"):
            return self._of_a_thing(names[0], names[1])
        found = self._of_a_job.get(names[1] if len(names) == 2 else "") if len(names) <= 2 else None
        if found is None or not names[0].startswith("job_"):
            return None
        method, call = found

        async def about_the_job(request: JobCall) -> Answer:
            job_id = parse_job(names[0])
            if job_id is None:
                raise Refused("jobs:not_found", "There is no such job here.")
            return await call(job_id, request)

        return {method: about_the_job}

    def _of_a_thing(self, things: str, name: str) -> dict[str, Call]:
        call = self._admin.queue if things == "queues" else self._admin.schedule

        def by(method: str) -> Call:
            return lambda request: call(method, name, request)

        return {method: by(method) for method in ("GET", "PUT", "DELETE")}


def _check_head(request: HttpRequest) -> None:
    """Refuse what the request head alone shows to be wrong."""
    method, fields = request.method, request.fields
    # A web page of another origin can send a body without a content type, but needs a CORS preflight for JSON.
    unsaid = b"" if fields.get(b"origin") else b"application/json"
    kind = (fields.get(b"content-type") or unsaid).partition(b";")[0].strip().lower()
    if method in ("POST", "PUT") and kind != b"application/json":
        raise Refused("jobs:unsupported_media_type", "Send JSON, with the content type application/json.")
    length = fields.get(b"content-length") or b"0"
    if length.isdigit() and (len(length) > 18 or int(length) > MAX_BODY_BYTES):
        raise _too_large()


def _too_large() -> Refused:
    return Refused("jobs:too_large", f"A body may have at most {MAX_BODY_BYTES} bytes.", {"max": MAX_BODY_BYTES})


def _mesh_unauthorized(refused: UnauthorizedError) -> Refusal:
    """The mesh dialect answers a wrong token with 403; a missing token gets 401, as on every surface."""
    if refused.outcome is AuthOutcome.MISSING:
        return refused.refusal
    return Refusal("jobs:forbidden", refused.refusal.message)
