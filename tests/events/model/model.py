"""What the clients of a run were told, and what must hold of it.

Every client reports here: what it sends, each answer, each page, each broadcast. What can be judged at once is judged
at once; the rest is held against the whole log, read from 0 when the run is over. A page, a broadcast or a refusal that
was right when it was given is right for ever, because ids are given in the order in which they become visible and
nothing is taken back: so every page that was ever read must be exactly that stretch of the last log.

Nothing here knows the implementation. Canonical texts come from a library that the server does not use.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import rfc8785

Message = dict[str, Any]
MOST_FAULTS = 50
MOST_SAFE = 2**53 - 1


class Content(NamedTuple):
    """What equality compares: the set of partitions and the canonical text of the event."""

    partitions: tuple[str, ...]
    event: bytes


def content_of(partitions: Iterable[str], event: object) -> Content:
    """The content of an item; the names are in NFC already."""
    return Content(tuple(sorted(set(partitions), key=str.encode)), rfc8785.dumps(event))  # type: ignore[arg-type]


@dataclass(eq=False, slots=True)
class Draft:
    """One item, and how it fared: `owner` is the only client that sends it, empty if several may."""

    id: str
    partitions: tuple[str, ...]
    event: Message
    owner: str = ""
    is_valid: bool = True
    lines: set[int] = field(default_factory=set)
    """The connections it went out on."""
    is_settled: bool = False
    if_watermark: int | None = None
    """The watermark that it expects of its partitions."""
    floor: int = 0
    """The highest id in its partitions that any client had heard of when it was sent last."""

    @property
    def content(self) -> Content:
        """What it is compared by."""
        return content_of(self.partitions, self.event)


class Entry(NamedTuple):
    """One event of the log."""

    committed_id: int
    id: str
    content: Content
    client_id: str
    time: int


def entry_of(event: Message) -> Entry:
    """An entry from a page or a broadcast of the seed dialect."""
    content = content_of(event["partitions"], event["event"])
    return Entry(event["committed_id"], event["id"], content, event["client_id"], event["status_updated_at"])


def project_view(event: Message, project: str) -> Message:
    """How a 2.x client is shown an event of the seed dialect."""
    inside = event["event"]
    version, payload = inside.get("schemaVersion"), inside.get("payload")
    meta = dict(inside["meta"]) if isinstance(inside.get("meta"), dict) else {}
    meta.setdefault("clientTs", event["status_updated_at"])
    view = {
        "committedId": event["committed_id"],
        "id": event["id"],
        "projectId": project,
        "partition": inside.get("partition", project),
        "type": inside["type"],
        "schemaVersion": version if isinstance(version, int) and version > 0 else 1,
        "payload": payload if isinstance(payload, dict) else {"value": payload},
        "meta": meta | {"clientId": event["client_id"]},
        "serverTs": event["status_updated_at"],
    }
    return view | ({"userId": inside["userId"]} if "userId" in inside else {})


class Page(NamedTuple):
    """One page as it was given."""

    where: str
    names: frozenset[str]
    since: int
    to: int
    ids: tuple[int, ...]
    has_more: bool


@dataclass(eq=False, slots=True)
class Feed:
    """What one connection was sent live, and the subscriptions under which it was sent."""

    where: str
    number: int
    steps: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    """A watermark, and the names that count for everything above it."""
    ids: list[int] = field(default_factory=list)
    submitted: set[str] = field(default_factory=set)
    asked: frozenset[str] | None = None
    """Names that were asked for when the connection ended, without an answer: the server may have taken them."""


class Log:
    """The whole log, read from 0 when nothing changes any more."""

    def __init__(self, events: Sequence[Message]) -> None:
        self.events = {event["committed_id"]: event for event in events}
        self.entries = [entry_of(event) for event in events]
        self.by_id = {entry.id: entry for entry in self.entries}
        self._partitions = {entry.committed_id: frozenset(entry.content.partitions) for entry in self.entries}
        self._matching: dict[frozenset[str], list[int]] = {}

    def matching(self, names: frozenset[str]) -> list[int]:
        """The ids of all events in these partitions."""
        if names not in self._matching:
            self._matching[names] = [number for number, given in self._partitions.items() if given & names]
        return self._matching[names]

    def between(self, names: frozenset[str], since: int, to: int) -> list[int]:
        """Those above `since` and up to `to`."""
        ids = self.matching(names)
        return ids[bisect_right(ids, since) : bisect_right(ids, to)]

    def partitions(self, committed_id: int) -> frozenset[str]:
        """The partitions of one event."""
        return self._partitions.get(committed_id, frozenset())


class Model:
    """Everything that is known; `faults` must stay empty."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.high = 0
        """The highest id that any client has heard of."""
        self._highs: dict[str, int] = defaultdict(int)
        self.answers: dict[str, tuple[int, int]] = {}
        self.drafts: list[Draft] = []
        self.pages: list[Page] = []
        self.feeds: list[Feed] = []
        self.retries = 0
        self.conflicts = 0
        self.mismatches: list[tuple[Draft, int, str]] = []
        """Drafts that were refused for their watermark, the watermark that was told, and where."""
        self._owners: dict[int, str] = {}
        self._told: dict[str, Content] = {}
        self._tried: dict[str, set[Content]] = defaultdict(set)
        self._refused: dict[str, set[Content]] = defaultdict(set)
        self._senders: dict[str, set[str]] = defaultdict(set)
        self._shown: dict[int, Entry] = {}
        self._texts: dict[int, str] = {}
        self._views: dict[tuple[int, str], Message] = {}

    def blame(self, where: str, what: str) -> None:
        """Write a fault down."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"{where}: {what}")

    def require(self, truth: bool, where: str, what: str) -> None:
        """A fault unless it is true."""
        if not truth:
            self.blame(where, what)

    # -- While it runs ------------------------------------------------------------------------------------------------

    def sends(self, draft: Draft, client_id: str, line: int) -> None:
        """A client is about to send a draft on a connection."""
        self.retries += bool(draft.lines)
        draft.lines.add(line)
        draft.floor = max((self._highs[name] for name in draft.partitions), default=0)
        if draft.is_valid:
            self._tried[draft.id].add(draft.content)
            self._senders[draft.id].add(client_id)

    def commits(self, draft: Draft, committed_id: object, time: object, where: str) -> None:
        """A client was told that a draft is committed."""
        if type(committed_id) is not int or type(time) is not int or not 1 <= committed_id <= MOST_SAFE:
            return self.blame(where, f"{draft.id} has the place {committed_id!r} and the time {time!r}")
        draft.is_settled = True
        self.require(draft.is_valid, where, f"{draft.id} breaks a rule and was committed")
        first = self.answers.setdefault(draft.id, (committed_id, time))
        self.require(first == (committed_id, time), where, f"{draft.id}: {first} before, {(committed_id, time)} now")
        told = self._told.setdefault(draft.id, draft.content)
        self.require(told == draft.content, where, f"{draft.id} was committed with two contents")
        self._owns(committed_id, draft.id, where)
        self._raise(draft.partitions, committed_id)
        return None

    def mismatches_watermark(self, draft: Draft, watermark: object, where: str) -> None:
        """A client was told that the partitions of a draft have another watermark than the draft expects."""
        draft.is_settled = True
        if type(watermark) is not int:
            return self.blame(where, f"{draft.id}: the watermark is {watermark!r}")
        self.mismatches.append((draft, watermark, where))
        self.require(draft.id not in self.answers, where, f"{draft.id} was committed, and refused for its watermark")
        self.require(draft.is_valid, where, f"{draft.id} breaks a rule, and its watermark was looked at")
        expected = draft.if_watermark
        self.require(expected not in (None, watermark), where, f"{draft.id} expects {expected}, told {watermark}")
        self.require(watermark >= draft.floor, where, f"{draft.id}: {watermark}, and {draft.floor} was visible before")
        self._refused[draft.id].add(draft.content)
        return None

    def rejects(self, draft: Draft, reason: object, errors: object, where: str) -> None:
        """A client was told that a draft is rejected."""
        draft.is_settled = True
        has_errors = isinstance(errors, list) and len(errors) > 0
        self.require(reason == "validation_failed" and has_errors, where, f"{draft.id}: {reason!r}, {errors!r}")
        if draft.is_valid:
            self.conflicts += 1
            self._refused[draft.id].add(draft.content)
            others = self._tried[draft.id] - {draft.content}
            self.require(bool(others), where, f"{draft.id} was refused, and nobody has sent other content")

    def sees(self, number: int) -> None:
        """Somebody was told of this id: from now on nothing below it may appear."""
        self.high = max(self.high, number)

    def watermark(self, number: object, floor: int, where: str) -> None:
        """A watermark was told in an answer; `floor` was the highest known id before the question."""
        if type(number) is not int:
            return self.blame(where, f"the watermark is {number!r}")
        self.require(number >= floor, where, f"the watermark is {number}, and {floor} was visible before")
        return self.sees(number)

    def shows(self, event: Message, where: str) -> None:
        """A client was shown an event."""
        text = json.dumps(event, sort_keys=True)
        if self._texts.get(event["committed_id"]) == text:
            return  # letter for letter what somebody was shown before
        entry = entry_of(event)
        self._texts[entry.committed_id] = text
        first = self._shown.setdefault(entry.committed_id, entry)
        self.require(first == entry, where, f"{entry} now, {first} before")
        self._owns(entry.committed_id, entry.id, where)
        self._raise(entry.content.partitions, entry.committed_id)

    def shows_view(self, view: Message, project: str, where: str) -> None:
        """A 2.x client was shown an event."""
        committed_id = view.get("committedId")
        if type(committed_id) is not int or not isinstance(view.get("id"), str):
            return self.blame(where, f"no committed event: {view}")
        first = self._views.setdefault((committed_id, project), view)
        self.require(first == view, where, f"{view} now, {first} before")
        self._raise([project], committed_id)
        return self._owns(committed_id, view["id"], where)

    def floor(self, project: str) -> int:
        """The highest id that any client has heard of in one partition."""
        return self._highs[project]

    def _raise(self, names: Iterable[str], number: int) -> None:
        for name in names:
            self._highs[name] = max(self._highs[name], number)

    def _owns(self, committed_id: int, event_id: str, where: str) -> None:
        self.sees(committed_id)
        owner = self._owners.setdefault(committed_id, event_id)
        self.require(owner == event_id, where, f"place {committed_id} belongs to {owner} and to {event_id}")

    # -- When it is over ----------------------------------------------------------------------------------------------

    def judge(self, log: Log) -> None:
        """Hold everything that was ever told against the log."""
        self._judge_order(log)
        self._judge_answers(log)
        self._judge_shown(log)
        self._judge_drafts()
        self._judge_watermarks(log)
        for page in self.pages:
            self._judge_page(page, log)
        for feed in self.feeds:
            self._judge_feed(feed, log)

    def _judge_order(self, log: Log) -> None:
        numbers = [entry.committed_id for entry in log.entries]
        times = [entry.time for entry in log.entries]
        self.require(numbers == sorted(set(numbers)), "log", "the ids do not ascend")
        self.require(times == sorted(times), "log", "the times go back")
        self.require(len(log.by_id) == len(log.entries), "log", "an event is there twice")
        self.require(not numbers or numbers[0] >= 1, "log", "an id is below 1")

    def _judge_answers(self, log: Log) -> None:
        for event_id, answer in self.answers.items():
            entry = log.by_id.get(event_id)
            if entry is None:
                self.blame("log", f"{event_id} was acknowledged as {answer} and is lost")
                continue
            self.require((entry.committed_id, entry.time) == answer, "log", f"{entry}, but acknowledged as {answer}")
            self.require(entry.content == self._told[event_id], "log", f"{event_id} has another content than answered")
        for entry in log.entries:
            known = entry.content in self._tried[entry.id] and entry.client_id in self._senders[entry.id]
            self.require(known, "log", f"nobody has sent {entry}")
            self.require(
                entry.content not in self._refused[entry.id], "log", f"{entry.id} was refused, yet it is there"
            )

    def _judge_shown(self, log: Log) -> None:
        entries = {entry.committed_id: entry for entry in log.entries}
        for number, entry in self._shown.items():
            self.require(entries.get(number) == entry, "log", f"{entry} was shown, now {entries.get(number)}")
        for (number, project), view in self._views.items():
            event = log.events.get(number)
            expected = None if event is None else project_view(event, project)
            self.require(expected == view, "2.x", f"{view} was shown for {expected}")

    def _judge_drafts(self) -> None:
        """One client's own drafts were committed in the order in which it made them."""
        last: dict[str, int] = {}
        for draft in self.drafts:
            self.require(draft.is_settled or not draft.lines, draft.owner, f"{draft.id} was never answered")
            if draft.owner and draft.id in self.answers:
                number = self.answers[draft.id][0]
                self.require(number > last.get(draft.owner, 0), draft.owner, f"{draft.id} came before an earlier draft")
                last[draft.owner] = number

    def _judge_watermarks(self, log: Log) -> None:
        """What was committed under a condition follows the event that it names; what was refused was told an event."""
        for draft in self.drafts:
            if draft.owner and draft.if_watermark is not None and draft.id in self.answers:
                number = self.answers[draft.id][0]
                before = log.between(frozenset(draft.partitions), 0, number - 1)
                last = before[-1] if before else 0
                met = f"{draft.id} expects {draft.if_watermark}, and {number} follows {last}"
                self.require(last == draft.if_watermark, draft.owner, met)
        for draft, watermark, where in self.mismatches:
            is_known = watermark == 0 or not log.partitions(watermark).isdisjoint(draft.partitions)
            self.require(is_known, where, f"{draft.id} was told {watermark}, which is no event of its partitions")

    def _judge_page(self, page: Page, log: Log) -> None:
        expected = log.between(page.names, page.since, page.to)
        given = list(page.ids)
        what = f"page of {sorted(page.names)} after {page.since} up to {page.to}"
        self.require(given == expected[: len(given)], page.where, f"{what}: {given}, the log has {expected}")
        is_exact = page.has_more == (len(expected) > len(given))
        self.require(is_exact, page.where, f"{what}: has_more is {page.has_more} at {given}, the log has {expected}")

    def _judge_feed(self, feed: Feed, log: Log) -> None:
        """Ascending, nothing twice, nothing of its own, nothing left out up to the last one."""
        ids = feed.ids
        if not ids:
            return None
        self.require(ids == sorted(set(ids)), feed.where, f"broadcasts do not ascend: {ids}")
        if not feed.steps:
            return self.require(feed.asked is not None, feed.where, "broadcasts without a subscription")
        got = set(ids)
        for number in got:
            known = number > feed.steps[0][0] and self._may_be_sent(feed, number, log)
            self.require(known, feed.where, f"{number} was broadcast, subscribed: {feed.steps}")
        for number in self._must_be_sent(feed, log) - got:
            if log.events[number]["id"] not in feed.submitted:
                self.blame(feed.where, f"{number} was left out of the broadcasts up to {ids[-1]}")
        return self._judge_own(feed, log)

    def _judge_own(self, feed: Feed, log: Log) -> None:
        sent_here_alone = {draft.id for draft in self.drafts if draft.owner and draft.lines == {feed.number}}
        for number in feed.ids:
            event_id = log.events[number]["id"] if number in log.events else ""
            self.require(event_id not in sent_here_alone, feed.where, f"{event_id} was broadcast to its submitter")

    def _may_be_sent(self, feed: Feed, number: int, log: Log) -> bool:
        """Wanted by the subscription of its time, or by the next one, which the server may have applied early."""
        place = max(place for place, (watermark, _) in enumerate(feed.steps) if watermark < number)
        return bool(log.partitions(number) & (feed.steps[place][1] | (_following(feed, place) or frozenset())))

    def _must_be_sent(self, feed: Feed, log: Log) -> set[int]:
        """Wanted by the subscription of its time and not given up by the next, up to the last that came."""
        wanted: set[int] = set()
        for place, (watermark, names) in enumerate(feed.steps):
            to = feed.steps[place + 1][0] if place + 1 < len(feed.steps) else feed.ids[-1]
            following = _following(feed, place)
            kept = names if following is None else names & following
            wanted.update(log.between(kept, watermark, min(to, feed.ids[-1])))
        return wanted


def _following(feed: Feed, place: int) -> frozenset[str] | None:
    """The names that replaced those of a step, or may have; None if nothing did."""
    return feed.steps[place + 1][1] if place + 1 < len(feed.steps) else feed.asked
