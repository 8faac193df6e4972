"""Live delivery to one WebSocket: broadcasts of new entries, and which of them the client has acknowledged.

Live delivery starts when the client's pulls have reached the end of the log. From there on, entries of others are sent
as they are committed, read from the log behind the connection's own position. Each broadcast is followed by a ping,
and only its pong acknowledges it. An unacknowledged broadcast is delivered again by the next pull; and what the client
pushed before its pong is decided as a write without knowledge of the broadcast. There is one broadcast in flight at a
time, which limits the memory of a slow client.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.contracts.deltas.limits import MAX_PAGE
from semel.contracts.deltas.model import Replica
from semel.contracts.deltas.reading import News, Page
from semel.server.budget import Share
from semel.server.deltas.access import Asked
from semel.server.deltas.desk import Desk, NoRoomError, size_of


class Sent(NamedTuple):
    """A broadcast that the client has not acknowledged yet."""

    news: News
    """Without its entries: they have left, and need not be kept until the client says that it has them."""
    entries: int
    ping: int
    """The number of the ping behind it."""
    has_arrived: bool = False


class Live:
    """The delivery position of one connection."""

    def __init__(self, desk: Desk, asked: Asked, budget: int) -> None:
        self._desk = desk
        self._asked = asked
        self._budget = budget
        self._replica: Replica | None = None
        self._turn = 0
        """The number of the client's turn in which it pulled here."""
        self._after = 0
        self._held = 0
        """The cursor that the client has, if it is one that was given to it here."""
        self._has_news = False
        self._sent: Sent | None = None
        self.is_plain = False
        """Whether the client uses the plain dialect: its progress is not stored."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to read new entries."""
        return self._has_news and self._replica is not None and self._sent is None

    @property
    def is_waiting(self) -> bool:
        """Whether a broadcast is on its way."""
        return self._sent is not None

    def stir(self) -> None:
        """Something may have been committed."""
        self._has_news = True

    def is_shown_by(self, since: int) -> bool:
        """Whether a pull from this cursor shows that the client has what was on its way, before its pong does."""
        return self._sent is not None and since == self._sent.news.page.cursor

    def crosses(self, since: int) -> bool:
        """Whether a pull from this cursor was sent by a client that did not have what was on its way to it."""
        return self.is_waiting and since == self._held and not self.is_plain

    def pulled(self, replica: Replica, since: int, page: Page, *, is_plain: bool = False) -> None:
        """The client has pulled, and got this page: live delivery starts behind it, unless there are more pages.

        What is on its way counts for nothing then: the client has said where it stands.
        """
        self._sent = None
        self.is_plain = is_plain
        self._after = page.cursor
        self._held = page.cursor if page.entries else since
        self._replica = None if page.has_more else replica
        self._turn = self._desk.shown.turn(replica)
        self._has_news = True

    def pushed(self, cursor: int) -> None:
        """The client has pushed, and takes the answer for its cursor."""
        self._held = cursor

    async def look(self, room: Share) -> News | None:
        """The next entries of others, with room for them; None when there are none."""
        assert self._replica is not None
        if not room.has_room:
            raise NoRoomError
        self._has_news = False
        desk, replica = self._desk, self._replica
        look = desk.plain_news if self.is_plain else desk.news
        found = await look(self._asked, replica, self._after, MAX_PAGE, self._budget)
        if found.page.entries:
            if not room.resize(size_of(found.page)):
                self._has_news = True
                raise NoRoomError
            return found
        self._after = max(self._after, found.page.cursor)
        self._has_news = self._has_news or found.page.has_more
        return None

    def sent(self, news: News, ping: int) -> None:
        """They go out, with a ping of this number behind them."""
        count = len(news.page.entries)
        self._sent = Sent(news._replace(page=news.page._replace(entries=())), count, ping)

    def answers(self, pong: int) -> bool:
        """Whether a pong says that the client has what was on its way; it says so once."""
        if self._sent is None or self._sent.has_arrived or pong < self._sent.ping:
            return False
        self._sent = self._sent._replace(has_arrived=True)
        return True

    def arrived(self) -> None:
        """The client has acknowledged the broadcast: continue behind it, unless it has pulled elsewhere since."""
        if self._sent is None:
            return
        assert self._replica is not None
        news = self._sent.news
        is_guest = not self._asked.speaks_for(self._replica.client)
        if self.is_plain:
            self._desk.journal.given(self._sent.entries)
        elif not is_guest and self._desk.shown.turn(self._replica) == self._turn:
            self._desk.tell(self._replica, self._turn, news, self._sent.entries)
        self._sent = None
        self._after = news.page.cursor
        self._held = max(self._held, news.page.cursor)
        self._has_news = self._has_news or news.page.has_more
