"""Requests of a connection that read the log: `connect` and `sync`.

The subscription of a sync starts at the watermark of its page: the subscriber is paused before the log is read, and
resumed, with its new partitions, behind the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.contracts.epoch import epoch_of
from semel.contracts.events.reading import HistoryQuery, head_of, judged_history, last_in
from semel.contracts.events.rules.epochs import Reset
from semel.contracts.events.wire.dialect import Welcome
from semel.contracts.events.wire.frame_size import page_room
from semel.contracts.events.wire.messages import Connect, Sync, WireError
from semel.contracts.events.wire.reset import reset_error_camel, reset_payload
from semel.contracts.events.wire.session import Session, State
from semel.engine.reading import Reading
from semel.server.events.hub import Hub
from semel.server.events.subscriber import Subscriber
from semel.server.principals import Principal

Tell = Callable[[str, bytes, str | None], None]
Admit = Callable[[Principal, str], bool]


class Looks:
    """Handles `connect` and `sync`. Answers go to `tell`; `admit` reserves the place of an authenticated client."""

    def __init__(
        self, hub: Hub, remote: str, session: Session, subscriber: Subscriber, tell: Tell, admit: Admit
    ) -> None:
        self._hub = hub
        self._remote = remote
        self._session = session
        self._subscriber = subscriber
        self._tell = tell
        self._admit = admit

    async def connect(self, asked: Connect, reply_to: str | None) -> None:
        """Authenticate the client, and answer with the position of the log."""
        principal = self._hub.principal(asked.token.encode(), self._remote)
        try:
            who = self._hub.identity(principal, asked.client_id)
        except WireError:
            self._hub.denied(self._remote)
            raise
        project = asked.project
        if project is not None and not (who.may_read(project) or who.may_write(project)):
            raise WireError("forbidden", "This credential may not use that project.", closes=True)
        last, project_last, epoch = await self._hub.context.engine.read(lambda reading: _watermarks(reading, project))
        dialect = self._session.dialect
        if self._session.state is State.CLOSED or dialect is None:
            return
        self._session.activate(who)
        if self._admit(principal, asked.instance):
            welcome = Welcome(who.client_id, self._hub.context.world.wall_ms(), last, project_last, epoch)
            self._tell("connected", dialect.connected(welcome, self._hub.terms), reply_to)

    async def sync(self, asked: Sync, reply_to: str | None) -> None:
        """Answer with one page, and deliver live events from its watermark on."""
        dialect = self._session.dialect
        assert dialect is not None
        bound = self._session.bound_of(asked)
        subscribed = sorted(self._subscriber.names if asked.subscription is None else asked.subscription)
        budget = page_room(dialect.page_head(asked, subscribed, reply_to, self._hub.terms), self._hub.terms.limits)
        if dialect.holds_while_paging or asked.subscription is not None:
            self._subscriber.hold()
        wanted = HistoryQuery(asked.names, asked.since, asked.log_epoch, bound, asked.limit)
        stands, page = await self._hub.context.engine.read(
            lambda reading: judged_history(reading, wanted, budget, dialect.event)
        )
        if self._session.state is State.CLOSED:
            return
        self._hub.cursors.note(stands, asked.since)
        if stands.reset is not None:
            self._subscriber.release()
            self._tell_reset(stands.reset, reply_to)
            return
        self._session.paged(asked, page)
        if asked.subscription is not None:
            self._subscriber.subscribe(page.sync_to, frozenset(asked.subscription))
        self._tell("sync_response", dialect.page(asked, page, subscribed, self._hub.terms), reply_to)
        if not (dialect.holds_while_paging and page.has_more):
            self._subscriber.release()

    def _tell_reset(self, reset: Reset, reply_to: str | None) -> None:
        """Nothing is subscribed or served: what the connection was sent live before goes on."""
        dialect = self._session.dialect
        assert dialect is not None
        if not dialect.knows_reset:
            raise reset_error_camel(reset)
        self._tell("reset", reset_payload(reset), reply_to)


def _watermarks(reading: Reading, project: str | None) -> tuple[int, int, int]:
    last_of_project = 0 if project is None else last_in(reading, project)
    return head_of(reading).last_id, last_of_project, epoch_of(reading)
