"""Plain claims and completions whose heads have known shapes: from request bytes to answer bytes.

The shape holds everything that is the same in each of these requests: the path, the credential and the constant headers
of the answer. The credential is checked again for each request. If anything in the request or in the outcome is
unusual, the full path takes over, with the same answer. `shaped_submission` has the submissions.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from semel.engine.contract import EngineError
from semel.engine.plain_write import PlainWrite
from semel.kernel.errors import Refused
from semel.server.auth.authentication import admitted_again, judge_again
from semel.server.auth.principals import DEVELOPER, Principal, Role, UnauthorizedError, presented
from semel.server.http.answer import JSON, NO_STORE, Answer, header_block, nothing_held
from semel.server.http.answer_head import STATUS_LINES
from semel.server.http.exchange import HttpExchange
from semel.server.http.head_shapes import VARYING
from semel.server.ops.log_facts import ShapedOrigin
from semel.server.ops.request_times import HTTP
from semel.surfaces.jobs.commands import ClaimJobs, JobRefused, JobReport, JobReported, JobsClaimed
from semel.surfaces.jobs.ids import job_name, parse_job
from semel.surfaces.jobs.rules.plain_claim import PlainClaim
from semel.surfaces.jobs.rules.plain_completion import PlainReport
from semel.surfaces.jobs.rules.plain_submission import LOCK_NAME
from semel.surfaces.jobs.service import SURFACE, JobCall, JobService, owner_of
from semel.surfaces.jobs.tables import INLINE_BYTES
from semel.surfaces.jobs.wire.answers import claimed_bytes, completed_bytes
from semel.surfaces.jobs.wire.quick import quick_claim, quick_report
from semel.surfaces.jobs.wire.worker_calls import ClaimCaller

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol
    from semel.surfaces.jobs.worker_calls import WorkerCalls

_ACTED_ON = (*VARYING, b"idempotency-key", b"prefer")
"""Headers that rule out a shape: their values change, or the full path acts on them."""
COUNTED = (SURFACE, "POST", 200)
_ANSWER = (
    STATUS_LINES[200] + b"%b" + header_block((JSON, NO_STORE)) + b"x-request-id: %b\r\n%bcontent-length: %d\r\n\r\n%b"
)
"""The answer with its date, request id, further headers, size and body."""


class CallShape:
    """The shape of one client's calls of one kind."""

    is_pipelined = False
    counted = COUNTED

    def __init__(self, service: JobService, call: JobCall, role: Role) -> None:
        self.service = service
        self.context = service.context
        self.jobs = service.jobs
        self.length = len(call.body)
        self.times = self.context.metrics.times.of(SURFACE, HTTP)
        self.common = call.http.common
        self._role = role
        self._token = presented(call.fields)
        self._headers = call.http.headers
        self.raw_path = call.http.raw_path

    def principal(self, connection: HttpProtocol) -> Principal | None:
        """The caller, if its credential still allows this call; otherwise None."""
        if not self.context.principals.are_known:
            return DEVELOPER
        known = judge_again(self.context, self._token, connection)
        return known if known is not None and known.has(self._role) else None

    def actor_of(self, principal: Principal) -> str:
        """The principal whose share of the queue a write takes."""
        return principal.actor if self.context.principals.are_known else ""

    def start(self, connection: HttpProtocol, write: RunningCall) -> bool:
        """Pass a plain write to the engine; it then runs on the connection. False if there is no room for it."""
        context = self.context
        if not context.engine.offer_plain(write):
            return False
        if context.principals.are_known:
            admitted_again(context, connection, self.length)
        connection.begin(write)
        return True

    def call(self, write: RunningCall) -> JobCall:
        """The call as the full path represents it; if its client is there, its exchange takes over the connection."""
        connection = write.connection
        exchange = HttpExchange(connection, keep_alive=True)
        request = exchange.shaped(self.path_of(write), self._headers, write.drawn_id(), write.admitted_at)
        request.namespace = self.context.namespace
        request.common, request.surface, request.principal = self.common, SURFACE, write.principal
        request.gone = write.gone
        if write.is_here:
            exchange.request = request
            request.on_gone = write.leave
            connection.running = exchange
        return JobCall(write.caller, request.fields, write.body, b"", write, request)

    def path_of(self, write: RunningCall) -> bytes:
        """The path of a request of this shape."""
        return self.raw_path


def may_be_shaped(call: JobCall) -> bool:
    """Whether the head of a call may have a shape: it has no header that changes, and one credential at most."""
    fields = call.fields
    if call.http.version != "1.1" or call.query or any(name in fields.one for name in _ACTED_ON):
        return False
    try:
        presented(fields)
    except UnauthorizedError:  # in development mode any credential is accepted
        return False
    return True


def run_on(call: Any, shape: CallShape, connection: HttpProtocol, caller: Principal, body: bytes) -> None:
    """Set the attributes that all running calls have, in place of four constructors, because the time counts.

    The slots are those of each kind of call: two bases with slots of their own cannot be combined.
    """
    call.shape = shape
    call.connection = connection
    call.caller = caller
    call.body = body
    call.contract = shape.jobs
    call.lock = LOCK_NAME
    call.size = len(body)
    call.principal = shape.actor_of(caller)
    call.gone = False
    call.future = None
    call.admitted_at = 0.0
    call._watchers = ()


class RunningCall(ShapedOrigin, PlainWrite):
    """What the plain writes of shapes have in common: they run on a connection in place of an exchange."""

    __slots__ = ()

    shape: CallShape
    connection: HttpProtocol
    caller: Principal
    body: bytes
    keep_alive = True
    is_pipelined = False

    def lose(self) -> None:
        """The client has disconnected."""
        self.leave()

    def start(self) -> None:
        """The answer to this request is next. Only submissions wait for earlier ones."""

    @property
    def is_here(self) -> bool:
        """Whether the client still waits on its connection."""
        connection = self.connection
        return not self.gone and connection.running is self and not connection.transport.is_closing()

    @property
    def is_quick(self) -> bool:
        """Whether the answer may be written at once."""
        return not (self.connection.is_stopping or self.connection.flow.write_paused)

    def send(self, body: bytes) -> None:
        """Send an answer with status 200, if the client still waits for it."""
        if not self.is_here:
            return
        connection, shape = self.connection, self.shape
        context = shape.context
        context.metrics.requests[COUNTED] += 1
        shape.times.observe(monotonic() - self.admitted_at)
        connection.transport.write(
            _ANSWER % (connection.host.date, next(context.request_ids), shape.common, len(body), body)
        )
        connection.answered(self)

    def hand_over(self, answer: Callable[[JobCall], Coroutine[Any, Any, Answer]]) -> None:
        """Answer by the full path; if the client has gone, only to count and note the outcome."""
        is_here = self.is_here
        call = self.shape.call(self)
        if is_here:
            call.http.proceed(answer(call))
        else:
            self.connection.spawn(_without_answer(answer(call)), nothing_held)

    def fail(self, error: BaseException) -> None:
        """Send the refusal for the error."""
        if self.is_here:
            self.hand_over(lambda call: _raise(error))


async def _raise(error: BaseException) -> Answer:
    raise error


async def _without_answer(work: Coroutine[Any, Any, Answer]) -> None:
    with suppress(Refused, EngineError):
        await work


class WorkShape(CallShape):
    """The shape of plain calls of workers."""

    def __init__(self, calls: WorkerCalls, service: JobService, call: JobCall) -> None:
        super().__init__(service, call, Role.WORK)
        self.calls = calls
        self._of: tuple[Principal | None, bytes] = (None, b"")
        """The last caller, and its name in rows."""

    def owner(self, principal: Principal) -> bytes:
        """The name of the caller in rows."""
        if self._of[0] is not principal:
            self._of = principal, owner_of(principal)
        return self._of[1]


class ClaimShape(WorkShape):
    """The shape of plain claims."""

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start a claim; False leaves the request to the full path."""
        principal = self.principal(connection)
        if principal is None or principal.scopes is not None:
            return False
        asker = ClaimCaller(self.owner(principal), None, self.context.world.wall_ms(), self.calls.secret)
        command = quick_claim(body, asker, self.service.long_polls.reap_until)
        return command is not None and self.start(connection, ShapedClaim(self, connection, principal, command, body))


class ShapedClaim(RunningCall, PlainClaim):
    """A plain claim on a connection."""

    __slots__ = ("body", "caller", "connection", "shape")

    shape: ClaimShape

    def __init__(
        self, shape: ClaimShape, connection: HttpProtocol, caller: Principal, claim: ClaimJobs, body: bytes
    ) -> None:
        run_on(self, shape, connection, caller, body)
        self.claim = claim
        self.cost = claim.most

    def settle(self, answer: JobsClaimed) -> None:
        """Send the answer; an answer that is not plain takes the full path."""
        is_odd = any(job.params_bytes > INLINE_BYTES or job.offered for job, _ in answer.leases)
        shape = self.shape
        if answer.notes or is_odd or not self.is_quick or not self.is_here:
            self.hand_over(lambda call: shape.calls.answer_claim(call, self.claim, answer))
            return
        shape.calls.observe(answer)
        self.send(claimed_bytes(answer))


class ReportShape(WorkShape):
    """The shape of plain completions; the name of the job varies."""

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start a completion; False leaves the request to the full path."""
        principal, job_id = self.principal(connection), parse_job("job_" + key.decode())
        if principal is None or job_id is None:
            return False
        command = quick_report(job_id, body, self.service.policy)
        return command is not None and self.start(connection, ShapedReport(self, connection, principal, command, body))

    def path_of(self, write: RunningCall) -> bytes:
        """The path of the request, with the name of its job."""
        assert isinstance(write, ShapedReport)
        return f"/v1/jobs/{job_name(write.report.id)}/complete".encode()


class ShapedReport(RunningCall, PlainReport):
    """A plain completion on a connection."""

    __slots__ = ("body", "caller", "connection", "shape")

    shape: ReportShape

    def __init__(
        self, shape: ReportShape, connection: HttpProtocol, caller: Principal, report: JobReport, body: bytes
    ) -> None:
        run_on(self, shape, connection, caller, body)
        self.report = report

    def settle(self, answer: JobReported | JobRefused) -> None:
        """Send the answer; an answer that is not plain takes the full path."""
        if not isinstance(answer, JobReported) or answer.dedup or answer.job.reason or not self.is_quick:
            shape = self.shape
            self.hand_over(lambda call: shape.calls.answer_report(call, self.report, answer, has_proof=False))
            return
        self.shape.calls.count_plain(answer)
        self.send(completed_bytes(answer))
