"""Subscribers of gateways over WebSocket on this node, and the broadcasts to each of them.

A commit, here or on another node, is signalled by the topic of its gateway. One task for each gateway waits for the
signal and wakes the subscribers. A signal carries no data: a subscriber reads the log from its own cursor. So the task
is no follower of `engine/follow.py`: it reads nothing, and passes one signal on to conversations, each of which also
waits for frames of its client and for pongs.

A connection receives no broadcast before the client's first pull has reached the end of the log. From then on, entries
of others are sent as they are committed, read from the log behind the connection's own position. Each broadcast is
followed by a ping, and only its pong confirms that the client has it. So a broadcast that is lost with its connection
is delivered again by the next pull; and what the client pushed before it had the broadcast is judged as written
without knowledge of it. There is one broadcast under way at a time: a slow client costs no more memory than that.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from semel.engine.notification import CommitNotifier
from semel.server.memory_budget import BudgetShare
from semel.surfaces.deltas.access import DeltaCaller
from semel.surfaces.deltas.limits import MAX_PAGE
from semel.surfaces.deltas.model import DeltaReplica
from semel.surfaces.deltas.reading import DeltaBroadcast, DeltaPage
from semel.surfaces.deltas.rules.push import topic_of
from semel.surfaces.deltas.service import DeltaService, OverBudgetError, size_of

POLL_SECONDS = 30.0
"""Seconds between two reads of the log without a signal, since a signal may be lost."""


class GatewaySubscriber(Protocol):
    """A subscriber: one connection."""

    def stir(self) -> None:
        """Note that something may have been committed."""


class GatewaySubscribers:
    """The subscribers of this node by gateway; used on the event loop only."""

    def __init__(self, signals: CommitNotifier) -> None:
        self._signals = signals
        self._members: dict[str, set[GatewaySubscriber]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def join(self, gateway: str, subscriber: GatewaySubscriber) -> None:
        """Wake a subscriber on commits from now on; it reads earlier commits itself."""
        self._members.setdefault(gateway, set()).add(subscriber)
        if gateway not in self._tasks:
            self._tasks[gateway] = asyncio.get_running_loop().create_task(self._listen(gateway))

    def leave(self, gateway: str, subscriber: GatewaySubscriber) -> None:
        """Stop waking a subscriber."""
        members = self._members.get(gateway)
        if members is None:
            return
        members.discard(subscriber)
        if not members:
            del self._members[gateway]
            self._tasks.pop(gateway).cancel()

    async def _listen(self, gateway: str) -> None:
        watch = self._signals.watch(topic_of(gateway))
        try:
            while True:
                await watch.wait(POLL_SECONDS)
                watch.arm()
                for subscriber in list(self._members.get(gateway, ())):
                    subscriber.stir()
        finally:
            watch.close()


class SentBroadcast(NamedTuple):
    """A broadcast that the client has not acknowledged yet."""

    news: DeltaBroadcast
    """The broadcast without its entries: they are sent, and need not be held until the client acknowledges them."""
    entries: int
    ping: int
    """The number of the ping that follows the broadcast."""
    has_arrived: bool = False


class DeltaBroadcasts:
    """The delivery position of one connection."""

    def __init__(self, service: DeltaService, asked: DeltaCaller, budget: int) -> None:
        self._service = service
        self._asked = asked
        self._budget = budget
        self._replica: DeltaReplica | None = None
        self._turn = 0
        """The number of the turn in which the client last pulled on this connection."""
        self._after = 0
        self._held = 0
        """The client's cursor, if it was given on this connection."""
        self._has_news = False
        self._sent: SentBroadcast | None = None
        self.is_plain = False
        """Whether the client uses the plain dialect: its progress is not stored."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to read new entries."""
        return self._has_news and self._replica is not None and self._sent is None

    @property
    def is_waiting(self) -> bool:
        """Whether a broadcast is not acknowledged yet."""
        return self._sent is not None

    def stir(self) -> None:
        """Note that something may have been committed."""
        self._has_news = True

    def is_shown_by(self, since: int) -> bool:
        """Whether a pull from this cursor acknowledges the pending broadcast, before its pong does."""
        return self._sent is not None and since == self._sent.news.page.cursor

    def crosses(self, since: int) -> bool:
        """Whether the client sent a pull from this cursor before it received the pending broadcast."""
        return self.is_waiting and since == self._held and not self.is_plain

    def pulled(self, replica: DeltaReplica, since: int, page: DeltaPage, *, is_plain: bool = False) -> None:
        """Note that the client has pulled this page. Live delivery starts after it, unless more pages follow.

        A pending broadcast is dropped: the pull states the client's position.
        """
        self._sent = None
        self.is_plain = is_plain
        self._after = page.cursor
        self._held = page.cursor if page.entries else since
        self._replica = None if page.has_more else replica
        self._turn = self._service.shown.turn(replica)
        self._has_news = True

    def pushed(self, cursor: int) -> None:
        """Note that the client has pushed and now has the cursor of the answer."""
        self._held = cursor

    async def look(self, room: BudgetShare) -> DeltaBroadcast | None:
        """The next entries of others, with `room` resized to them; None if there are none."""
        assert self._replica is not None
        if not room.has_room:
            raise OverBudgetError
        self._has_news = False
        service, replica = self._service, self._replica
        look = service.plain_news if self.is_plain else service.news
        found = await look(self._asked, replica, self._after, MAX_PAGE, self._budget)
        if found.page.entries:
            if not room.resize(size_of(found.page)):
                self._has_news = True
                raise OverBudgetError
            return found
        self._after = max(self._after, found.page.cursor)
        self._has_news = self._has_news or found.page.has_more
        return None

    def sent(self, news: DeltaBroadcast, ping: int) -> None:
        """Note that a broadcast was sent, followed by a ping with this number."""
        count = len(news.page.entries)
        self._sent = SentBroadcast(news._replace(page=news.page._replace(entries=())), count, ping)

    def answers(self, pong: int) -> bool:
        """Whether a pong acknowledges the pending broadcast; true only once."""
        if self._sent is None or self._sent.has_arrived or pong < self._sent.ping:
            return False
        self._sent = self._sent._replace(has_arrived=True)
        return True

    def arrived(self) -> None:
        """Continue after the acknowledged broadcast; record it, unless the client has pulled elsewhere since."""
        if self._sent is None:
            return
        assert self._replica is not None
        news = self._sent.news
        is_guest = not self._asked.speaks_for(self._replica.client)
        if self.is_plain:
            self._service.audit_trail.given(self._sent.entries)
        elif not is_guest and self._service.shown.turn(self._replica) == self._turn:
            self._service.tell(self._replica, self._turn, news, self._sent.entries)
        self._sent = None
        self._after = news.page.cursor
        self._held = max(self._held, news.page.cursor)
        self._has_news = self._has_news or news.page.has_more
