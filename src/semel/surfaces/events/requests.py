"""The requests of a connection that need the engine: `connect`, `sync` and `submit_events`.

A sync subscribes at the watermark of its page, so no event is missed between the page and live delivery: the
subscriber is held before the log is read, and released with its new partitions after the answer. Submissions are
handed to the engine in order and answered in order: after a batch of the engine, one write for each connection. The
feed waits for the pending answer to the submitter of an event before it sends the event to others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from semel.engine.back_pressure import NO_PRINCIPAL
from semel.engine.caller import RequestOrigin
from semel.engine.contract import FaultError
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.server.auth.principals import Principal
from semel.server.ops.log_facts import KnownOrigin
from semel.server.ops.request_times import WEBSOCKET
from semel.server.websocket.conversation import MessageTimes
from semel.surfaces.epoch import epoch_of
from semel.surfaces.events.commands import FORBIDDEN, EventCommitted, EventRejection, EventSubmit, EventSubmitted
from semel.surfaces.events.contract import Events
from semel.surfaces.events.reading import HistoryQuery, checked_history, head_of, last_in
from semel.surfaces.events.rules.epochs import CursorReset
from semel.surfaces.events.rules.plain_submit import PlainSubmit
from semel.surfaces.events.service import SURFACE, EventService
from semel.surfaces.events.subscriber import EventSubscriber
from semel.surfaces.events.wire.dialect import EventDialect, Welcome
from semel.surfaces.events.wire.message_size import answer_within, page_budget
from semel.surfaces.events.wire.messages import Connect, Sync, reset_error_camel, reset_payload
from semel.surfaces.events.wire.session import EventSession, SessionState

SendMessage = Callable[[str, bytes, str | None], None]
AdmitInstance = Callable[[Principal, str], bool]


def _ignore(*_: object) -> None:
    """Tell nobody."""


class SyncHandler:
    """Handles `connect` and `sync`. Answers go to `tell`; `admit` reserves the place of an authenticated client, and
    `read_live` that of a live reader.
    """

    def __init__(
        self,
        service: EventService,
        remote: str,
        session: EventSession,
        subscriber: EventSubscriber,
        tell: SendMessage,
        admit: AdmitInstance,
        read_live: Callable[[], None],
    ) -> None:
        self._service = service
        self._remote = remote
        self._session = session
        self._subscriber = subscriber
        self._tell = tell
        self._admit = admit
        self._read_live = read_live

    async def connect(self, asked: Connect, reply_to: str | None) -> None:
        """Authenticate the client, and answer with the position of the log."""
        principal = self._service.principal(asked.token.encode(), self._remote)
        try:
            who = self._service.identity(principal, asked.client_id)
        except Refused:
            self._service.denied(self._remote)
            raise
        project = asked.project
        if project is not None and not (who.may_read(project) or who.may_write(project)):
            raise Refused("forbidden", "This credential may not use that project.", closes=True)
        last, project_last, epoch = await self._service.context.engine.read(
            lambda reading: _watermarks(reading, project)
        )
        dialect = self._session.dialect
        if self._session.state is SessionState.CLOSED or dialect is None:
            return
        self._session.activate(who)
        if self._admit(principal, asked.instance):
            welcome = Welcome(who.client_id, self._service.context.world.wall_ms(), last, project_last, epoch)
            self._tell("connected", dialect.connected(welcome, self._service.policy), reply_to)

    async def sync(self, asked: Sync, reply_to: str | None) -> None:
        """Answer with one page, and deliver live events from its watermark on."""
        dialect = self._session.dialect
        assert dialect is not None
        if asked.subscription:
            self._read_live()
        bound = self._session.bound_of(asked)
        subscribed = sorted(self._subscriber.names if asked.subscription is None else asked.subscription)
        budget = page_budget(
            dialect.page_head(asked, subscribed, reply_to, self._service.policy), self._service.policy.limits
        )
        if dialect.holds_while_paging or asked.subscription is not None:
            self._subscriber.hold()
        wanted = HistoryQuery(asked.names, asked.since, asked.log_epoch, bound, asked.limit, asked.types)
        status, page = await self._service.context.engine.read(
            lambda reading: checked_history(reading, wanted, budget, dialect.event)
        )
        if self._session.state is SessionState.CLOSED:
            return
        self._service.cursors.note(status, asked.since)
        if status.reset is not None:
            self._subscriber.release()
            self._tell_reset(status.reset, reply_to)
            return
        self._session.paged(asked, page)
        if asked.subscription is not None:
            self._subscriber.subscribe(page.sync_to, frozenset(asked.subscription), asked.subscription_types)
        self._tell("sync_response", dialect.page(asked, page, subscribed, self._service.policy), reply_to)
        if not (dialect.holds_while_paging and page.has_more):
            self._subscriber.release()

    def _tell_reset(self, reset: CursorReset, reply_to: str | None) -> None:
        """Answer with a reset. No page is sent, and the subscription of the connection does not change."""
        dialect = self._session.dialect
        assert dialect is not None
        if not dialect.knows_reset:
            raise reset_error_camel(reset)
        self._tell("reset", reset_payload(reset), reply_to)


def _watermarks(reading: Reading, project: str | None) -> tuple[int, int, int]:
    last_of_project = 0 if project is None else last_in(reading, project)
    return head_of(reading).last_id, last_of_project, epoch_of(reading)


class PendingSubmit(PlainSubmit):
    """A submission of a connection on its way through the engine, plain or not."""

    __slots__ = ("_names", "answer", "error", "is_plain", "owner", "reply_to")

    def __init__(
        self, owner: EventSubmissions, contract: Events, command: EventSubmit, size: int, reply_to: str | None
    ) -> None:
        super().__init__(contract, command, size, owner.principal)
        self.owner = owner
        self.reply_to = reply_to
        self.is_plain = False
        """Whether it was given to the engine as a plain write."""
        self.answer: EventSubmitted | None = None
        self.error: BaseException | None = None
        self._names: frozenset[bytes] | None = None

    def origins(self) -> Sequence[RequestOrigin]:
        """The handshake of its connection."""
        return (self.owner.origin(),)

    def settle(self, answer: EventSubmitted) -> None:
        """The commit is on disk: answer after all writes of the batch are settled."""
        self.answer = answer
        self.owner.answer_soon()

    def fail(self, error: BaseException) -> None:
        """There is no answer."""
        self.error = error
        self.owner.answer_soon()

    def has(self, name: bytes) -> bool:
        """Whether an item has this id."""
        if self._names is None:
            self._names = frozenset([item.name for item in self.command.items])
        return name in self._names

    def sent(self) -> asyncio.Future[Any]:
        """Done when the answer was sent, or never will be."""
        if self.future is None:
            self.future = asyncio.get_running_loop().create_future()
        return self.future

    def end(self) -> None:
        """The answer was sent, or the connection closes without one."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class EventSubmissions:
    """The pending submissions of one connection.

    Answers go to `tell`. `go_on` is called after answers were sent, `fail` when a submission has no outcome, and
    `refuse` with the refusal of one submission.
    """

    def __init__(
        self,
        service: EventService,
        session: EventSession,
        tell: Callable[[list[bytes]], None],
        go_on: Callable[[], None],
        fail: Callable[[str], None],
        refuse: Callable[[Refusal, str | None], None],
        subscriber: EventSubscriber,
        remote: str,
    ) -> None:
        self._service = service
        self._session = session
        self._tell = tell
        self.origin: Callable[[], RequestOrigin] = lambda: KnownOrigin({})
        """What the submissions belong to in logs: the handshake of the connection."""
        self._go_on = go_on
        self._fail = fail
        self._refuse = refuse
        self._subscriber = subscriber
        self._remote = remote
        self._pending: deque[PendingSubmit] = deque()
        self._plain = 0
        """The number of plain submissions among the pending ones."""
        self.times: MessageTimes = service.context.metrics.times.of(SURFACE, WEBSOCKET)
        self._is_due = False
        """Whether answers are about to be sent."""
        self.principal = NO_PRINCIPAL
        """The principal whose share of the engine's queue the submissions take."""
        self.items = 0
        """The number of items that wait for a commit."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def takes_plain(self) -> bool:
        """Whether a plain submission may be admitted: the engine could decide it before a full one that waits."""
        return self._service.takes_plain and self._plain == len(self._pending)

    @property
    def takes_full(self) -> bool:
        """Whether a submission for the full rules may be admitted: the engine could decide it before a plain one."""
        return not self._plain

    def under_way(self, name: bytes) -> asyncio.Future[Any] | None:
        """The pending answer to the submitter of this event; None if there is none."""
        for pending in self._pending:
            if pending.has(name):
                return pending.sent()
        return None

    def hand_over(self, command: EventSubmit, size: int, reply_to: str | None) -> None:
        """Hand a submission to the engine. Raises at once if the engine's queue is full."""
        pending = PendingSubmit(self, self._service.contract, command, size, reply_to)
        self._service.context.engine.admit(pending.full(), pending)
        self._pending.append(pending)
        self.items += pending.cost

    def hand_over_plain(self, command: EventSubmit, size: int, reply_to: str | None) -> bool:
        """As `hand_over`, for a plain submission; False if the engine's queue is full."""
        pending = PendingSubmit(self, self._service.contract, command, size, reply_to)
        if not self._service.context.engine.offer_plain(pending):
            return False
        pending.is_plain = True
        self._plain += 1
        self._pending.append(pending)
        self.items += pending.cost
        return True

    def leave(self) -> None:
        """The client will not receive the answers: cancel the submissions that are not decided yet."""
        for pending in reversed(self._pending):  # newest first: no submission may be stored without the earlier ones
            pending.leave()

    def part(self) -> None:
        """The connection is lost: as `leave`, and what is decided later is counted and told to nobody."""
        self.leave()
        handshake = self.origin()
        self.origin = lambda: handshake
        self._tell = self._go_on = self._fail = self._refuse = _ignore

    def answer_soon(self) -> None:
        """Send answers after the whole batch is settled, so that the answers of one batch are one write."""
        if not self._is_due:
            self._is_due = True
            self._service.answer_soon(self)

    def answer(self) -> None:
        """Send the answers of all submissions that are settled, in their order."""
        """Send the answers that are ready, in order of submission."""
        self._is_due = False
        messages: list[bytes] = []
        answered: list[PendingSubmit] = []
        while self._pending and (answer := self._pending[0].answer) is not None:
            pending = self._take_first()
            answered.append(pending)
            messages.append(self._message(pending, answer))
        self._tell(messages)
        if self._pending and (error := self._pending[0].error) is not None:
            answered.append(self._take_first())
            self.leave()
            self._fail(unanswerable(error))
        else:
            self._go_on()
        now = monotonic()
        for pending in answered:
            self.times.observe(now - pending.admitted_at)
            pending.end()

    def _take_first(self) -> PendingSubmit:
        pending = self._pending.popleft()
        self._plain -= pending.is_plain
        self.items -= pending.cost
        return pending

    def _message(self, pending: PendingSubmit, answer: EventSubmitted) -> bytes:
        dialect = self._session.dialect
        assert dialect is not None
        new = sum([result.is_new for result in answer.results if isinstance(result, EventCommitted)])
        if new == len(answer.results):
            self._service.counts["committed"] += new
            payload = dialect.committed(pending.command, answer)
        else:
            payload = self._mixed(dialect, pending.command, answer)
        return self._session.message("submit_events_result", payload, pending.reply_to, answer.decided_at)

    def _mixed(self, dialect: EventDialect, command: EventSubmit, answer: EventSubmitted) -> bytes:
        """The payload of an answer with repeated or rejected items."""
        count_results(self._service.counts, answer)
        self._service.note_retries(answer, self.principal, self._remote)
        if has_denial(answer):
            self._service.denied(self._remote)
        for result in answer.results:
            if isinstance(result, EventCommitted) and not result.is_new:
                self._subscriber.skip(result.committed_id)
        return answer_within(partial(dialect.submitted, command), answer, self._service.policy.limits)


def count_results(counts: dict[str, int], answer: EventSubmitted) -> None:
    """Count the results by outcome, for the metrics."""
    for result in answer.results:
        if isinstance(result, EventCommitted):
            counts["committed" if result.is_new else "replayed"] += 1
        else:
            counts["rejected" if isinstance(result, EventRejection) else "not_processed"] += 1


def has_denial(answer: EventSubmitted) -> bool:
    """Whether an item was refused because the submitter lacks the right to its partition or its client id."""
    return any(isinstance(result, EventRejection) and result.reason == FORBIDDEN for result in answer.results)


def unanswerable(error: BaseException) -> str:
    """The error message for a submission without an answer: the client must repeat the same ids."""
    if isinstance(error, FaultError):
        return f"Something went wrong here; repeat the same ids. Error id {error.error_id}."
    return f"{str(error) or 'The server is stopping.'} Connect again and repeat the same ids."
