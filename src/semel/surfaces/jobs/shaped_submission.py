"""Plain submissions whose heads have known shapes: from request bytes to answer bytes.

As `shaped_calls`, and pipelined: the submissions of one connection that came together are started together, and each
answer waits for the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from semel.server.auth.principals import Principal, Role
from semel.server.http.answer import JSON, NO_STORE, header_block
from semel.server.http.answer_head import STATUS_LINES
from semel.surfaces.jobs.commands import JobAdmitted, JobDraft
from semel.surfaces.jobs.rules.plain_submission import PlainJobSubmit
from semel.surfaces.jobs.service import REPLAYED, SURFACE, JobCall, JobService, owner_of
from semel.surfaces.jobs.shaped_calls import COUNTED, CallShape, RunningCall, run_on
from semel.surfaces.jobs.submission_tally import SubmissionTally
from semel.surfaces.jobs.wire.answers import submitted_bytes
from semel.surfaces.jobs.wire.quick import quick_draft

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol
    from semel.surfaces.jobs.submission import JobSubmissions

_QUICK = {"J1": False, "J2": False, "J3": True}
"""Rows of the submission table whose answers have a template, and whether they are retries."""
_HEADERS = header_block((JSON, NO_STORE))
_REPLAYED_HEADERS = header_block((JSON, NO_STORE, REPLAYED))
_ANSWER = STATUS_LINES[200] + b"%b%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n%b"
"""The answer with its date, headers, request id, further headers, size and body."""


class SubmitShape(CallShape):
    """The shape of plain submissions."""

    is_pipelined = True

    def __init__(self, submissions: JobSubmissions, service: JobService, tally: SubmissionTally, call: JobCall) -> None:
        super().__init__(service, call, Role.WRITE)
        self.submissions = submissions
        self.tally = tally
        self.seconds = service.metrics.seconds["submit"]
        self.requests = self.context.metrics.requests
        self.request_ids = self.context.request_ids
        self._of: tuple[Principal | None, bytes] = (None, b"")
        """The last caller, and its name in rows."""

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start a submission; False leaves the request to the full path."""
        principal = self.principal(connection)
        if principal is None:
            return False
        last, owner = self._of
        if last is not principal:
            owner = owner_of(principal)
            self._of = principal, owner
        draft = quick_draft(body, owner, self.service.policy, self.submissions.chance())
        if draft is None or (principal.scopes is not None and not principal.may(Role.WRITE, SURFACE, draft.queue)):
            return False
        return self.start(connection, ShapedSubmit(self, connection, principal, draft, body))


class ShapedSubmit(RunningCall, PlainJobSubmit):
    """A plain submission on a connection."""

    __slots__ = ("began", "body", "caller", "connection", "early", "shape")

    is_pipelined = True
    shape: SubmitShape

    def __init__(
        self, shape: SubmitShape, connection: HttpProtocol, caller: Principal, draft: JobDraft, body: bytes
    ) -> None:
        run_on(self, shape, connection, caller, body)
        self.line = connection
        self.drafts = (draft,)
        self.cost = 1
        self.began = time.monotonic()
        self.early: Callable[[], None] | None = None
        """Sends the answer, if it came before those to earlier requests of the connection."""

    def start(self) -> None:
        """The answer is next: send it if it is there."""
        if self.early is not None:
            self.early()

    def lose(self) -> None:
        """The client has disconnected: count and note an outcome that was to be sent."""
        super().lose()
        self.start()

    def fail(self, error: BaseException) -> None:
        """Send the refusal for the error, in turn."""
        if not self.gone and self.connection.running is not self:
            self.early = partial(self.fail, error)
        else:
            super().fail(error)

    def settle(self, answer: Any) -> None:
        """Send the answer, in turn; an answer that is not plain takes the full path."""
        connection, shape = self.connection, self.shape
        is_running = connection.running is self
        if not is_running and not self.gone:  # the client waits for answers to earlier requests first
            self.early = partial(self.settle, answer)
            return
        admitted = answer[0]
        hit = _QUICK.get(admitted.rule) if type(admitted) is JobAdmitted else None
        if (
            hit is None
            or admitted.alias
            or len(admitted.notes) != hit
            or connection.is_stopping
            or connection.flow.write_paused
        ):
            self.hand_over(lambda call: shape.submissions.answer(call, self.drafts[0], answer, self.began))
            return
        if hit:
            client = connection.client
            address = client[0] if client else ""
            shape.tally.hit(admitted.notes[0], address)
            shape.context.retries.note(SURFACE, admitted.job.id, self.began, self.principal, address)
        else:
            shape.tally.accept()
        seconds = time.monotonic() - self.began
        shape.seconds.observe(seconds)
        if self.gone or not is_running or connection.transport.is_closing():
            return
        body = submitted_bytes(admitted, shape.context.world.wall_ms() if hit else 0, is_hit=hit)
        shape.requests[COUNTED] += 1
        shape.times.observe(seconds)
        connection.transport.write(
            _ANSWER
            % (
                connection.host.date,
                _REPLAYED_HEADERS if hit else _HEADERS,
                next(shape.request_ids),
                shape.common,
                len(body),
                body,
            )
        )
        connection.answered(self)
