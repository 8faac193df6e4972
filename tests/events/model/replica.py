"""A subscriber's own copy of its partitions, kept by the duties that the contract gives to clients.

Pages and broadcasts are applied by `committed_id`; broadcasts above the watermark of an open cycle wait until it ends;
a name that is new is read from 0. Each page is held against the rules for one page as it comes, and is written down for
the judgement at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.events.model.model import Feed, Message, Model, Page


@dataclass(slots=True)
class Answer:
    """A page in the words of neither dialect: its place, and the events' own numbers."""

    ids: list[int]
    next_since: object
    to: object
    has_more: object


@dataclass(slots=True)
class Cycle:
    """One catch-up under way."""

    names: frozenset[str]
    since: int
    limit: int
    floor: int
    """The highest id that anybody knew when it began."""
    to: int | None = None


class Replica:
    """What one subscriber has applied, over all its connections."""

    def __init__(self, model: Model, where: str, names: Iterable[str], *, moves_on_broadcast: bool) -> None:
        self.names = frozenset(names)
        self.applied: set[int] = set()
        self.cycle: Cycle | None = None
        self._model = model
        self._where = where
        self._moves_on_broadcast = moves_on_broadcast
        self._cursors: dict[str, int] = {}
        self._held: list[int] = []
        self.feed = Feed(where, 0)

    def begin(self, line: int) -> None:
        """A new connection: what an open cycle held is lost, and is fetched again."""
        self.feed = Feed(self._where, line)
        self._model.feeds.append(self.feed)
        self.cycle, self._held = None, []

    def since(self, names: Iterable[str]) -> int:
        """From where these names must be read: a name that was never read to the end begins at 0."""
        return min(self._cursors.get(name, 0) for name in names)

    def open(self, names: Iterable[str], limit: int, floor: int) -> Cycle:
        """Begin a cycle; `floor` is the highest id that anybody knows."""
        chosen = frozenset(names)
        self.cycle = Cycle(chosen, self.since(chosen), limit, floor)
        return self.cycle

    def subscribe(self, names: frozenset[str], watermark: int) -> None:
        """From this watermark on these names are pushed; names that are left out are forgotten."""
        if names != self.names or not self.feed.steps:
            self.feed.steps.append((watermark, names))
        self.feed.asked = None
        self._cursors = {name: place for name, place in self._cursors.items() if name in names}
        self.names = names

    def page(self, answer: Answer) -> None:
        """Apply a page of the open cycle, and end the cycle with its last."""
        cycle = self.cycle
        assert cycle is not None
        if not self._keep(cycle, answer):
            self.cycle = None
        elif not answer.has_more:
            self._close(cycle)

    def page_aside(self, cycle: Cycle, answer: Answer) -> None:
        """Look at a page of a cycle that is not pursued; the open cycle and the cursors stay as they are."""
        self._keep(cycle, answer)

    def _keep(self, cycle: Cycle, answer: Answer) -> bool:
        if not self._is_right(cycle, answer):
            return False
        assert isinstance(answer.to, int)
        assert isinstance(answer.next_since, int)
        page = Page(self._where, cycle.names, cycle.since, answer.to, tuple(answer.ids), bool(answer.has_more))
        self._model.pages.append(page)
        self.applied.update(answer.ids)
        cycle.to, cycle.since = answer.to, answer.next_since
        return True

    def push(self, committed_id: int) -> None:
        """Apply a broadcast, or keep it until the cycle is over."""
        self.feed.ids.append(committed_id)
        if self.cycle is None or (self.cycle.to is not None and committed_id <= self.cycle.to):
            self._apply(committed_id)
        else:
            self._held.append(committed_id)

    def _close(self, cycle: Cycle) -> None:
        for name in cycle.names & self.names:
            self._cursors[name] = max(cycle.since, self._cursors.get(name, 0))
        self.cycle = None
        held, self._held = self._held, []
        for committed_id in held:
            self._apply(committed_id)

    def _apply(self, committed_id: int) -> None:
        """All names move on: broadcasts of all of them come in one order."""
        self.applied.add(committed_id)
        if self._moves_on_broadcast and self.cycle is None:
            self._cursors = {name: max(place, committed_id) for name, place in self._cursors.items()}

    def _is_right(self, cycle: Cycle, answer: Answer) -> bool:
        """The rules for one page; False when it cannot even be read."""
        require, where = self._model.require, self._where
        to, following, ids = answer.to, answer.next_since, answer.ids
        if type(to) is not int or type(following) is not int or type(answer.has_more) is not bool:
            self._model.blame(where, f"no page: {answer}")
            return False
        if cycle.to is None:
            self._model.watermark(to, cycle.floor, where)
        else:
            require(to == cycle.to, where, f"the watermark of a cycle was {cycle.to} and is {to}")
        require(ids == sorted(set(ids)), where, f"a page does not ascend: {ids}")
        require(all(cycle.since < number <= to for number in ids), where, f"{ids} not in ({cycle.since}, {to}]")
        require(len(ids) <= cycle.limit, where, f"{len(ids)} events in a page of {cycle.limit}")
        require(bool(ids) or not answer.has_more, where, "an empty page says that there is more")
        expected = ids[-1] if ids else min(cycle.since, to)
        require(following == expected, where, f"the next cursor is {following}, not {expected}")
        return True


def seed_answer(payload: Message) -> Answer:
    """A page of the seed dialect, and of plain HTTP."""
    return Answer(
        [event["committed_id"] for event in payload["events"]],
        payload["next_since_committed_id"],
        payload["sync_to_committed_id"],
        payload["has_more"],
    )


def project_answer(payload: Message) -> Answer:
    """A page of 2.x."""
    return Answer(
        [event["committedId"] for event in payload["events"]],
        payload["nextSinceCommittedId"],
        payload["syncToCommittedId"],
        payload["hasMore"],
    )
