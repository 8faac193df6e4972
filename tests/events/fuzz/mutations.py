"""Frames that are wrong, made from frames that are right, each with the outcomes that the contract allows.

Everything comes from a seed. A `Mutator` speaks for one connection: its dialect, its client, and whether the handshake
is still to come. What it makes is one case after another: the bytes to send, and the row of the oracle they fall under.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.events.fuzz import breakages, oracle
from tests.events.fuzz.breakages import RARE
from tests.events.fuzz.documents import (
    Message,
    at,
    content_path,
    drop,
    envelope,
    paths,
    payloads,
    place_name,
    put,
    spelled,
    with_text,
)
from tests.events.fuzz.oracle import Row, one_of, only, place_row
from tests.events.raw_frames import frame, unframed
from tests.events.shapes import Dialect

RARELY = 0.05
"""How likely a case of a large kind is made when it is chosen."""

_ENDS = (oracle.VERSION, oracle.CAMEL_VERSION, oracle.FOREIGN, oracle.PROFILE, oracle.NOT_TEXT, oracle.DISCONNECTED)
ANYTHING = one_of(oracle.ANY_ITEM, oracle.PAGE, oracle.ACK, oracle.CONNECTED, only("forbidden"), *_ENDS)
"""What may come of a text of which nothing is known."""


class Case(NamedTuple):
    """One thing to send, and what may come of it."""

    kind: str
    expected: Row
    data: bytes
    starts: bool = False
    """Whether it may be answered with `connected`."""

    @property
    def may_end(self) -> bool:
        """Whether the connection may be over after it, or may not be the same."""
        return self.starts or any(outcome.end is not None for outcome in self.expected)


class Mutator:
    """Makes cases for one connection."""

    def __init__(self, chance: random.Random, dialect: Dialect, client_id: str, *, connects: bool = False) -> None:
        self.dialect = dialect
        self._chance = chance
        self._client_id = client_id
        self._connects = connects
        """The handshake is still to come: every message is wrong but this one."""
        self._kinds = sorted(breakages.UNREADABLE)
        if not connects and dialect is not Dialect.FLAT:
            self._kinds += sorted(breakages.ITEMS)
        if not connects and dialect is Dialect.SEED:
            self._kinds += sorted(breakages.SEED_KINDS)

    def case(self) -> Case:
        """The next one; of somebody who has not said who he is, less is taken."""
        case = self._any_case()
        is_large = self._connects and len(unframed(case.data)) > oracle.STRANGER_BYTES
        return case._replace(expected=oracle.OVERSIZE) if is_large else case

    def _any_case(self) -> Case:
        odds = self._chance.random()
        if self._connects and odds < 0.25:
            return self._too_early()
        if odds < 0.55:
            return self._changed_place()
        if odds < 0.62:
            return self._flipped()
        if odds < 0.7:
            return self._more_members()
        kind = self._chance.choice(self._kinds)
        while kind in RARE and self._chance.random() > RARELY:
            kind = self._chance.choice(self._kinds)
        return self._broken(kind)

    def mark(self, message_id: str) -> bytes:
        """A message that is right, by whose answer the ones before it are known to be over."""
        if self.dialect is Dialect.SEED:
            return self._frame(envelope(self.dialect, "heartbeat", {}, message_id))
        return self._frame(envelope(self.dialect, "sync", self._payloads()["sync"], message_id))

    def hello(self) -> bytes:
        """The handshake, or, where it is still to come, a first frame that settles the dialect."""
        if self._connects:
            return self._frame(envelope(self.dialect, "heartbeat", {}))
        return self._frame(envelope(self.dialect, "connect", self._payloads()["connect"]))

    def _changed_place(self) -> Case:
        """A member left out, or another value in its place."""
        kind, message = self._message()
        path = self._chance.choice(list(paths(message)))
        place = place_name(path)
        starts = kind == "connect"
        if self._chance.random() < 0.25:
            row = place_row(self.dialect, kind, place, None)
            return Case(f"no {place}", row, self._frame(drop(message, path)), starts)
        label = self._chance.choice(sorted(oracle.VALUES))
        row = place_row(self.dialect, kind, place, label)
        return Case(f"{label} as {place}", row, self._frame(put(message, path, oracle.VALUES[label])), starts)

    def _too_early(self) -> Case:
        kind = self._chance.choice(sorted(set(self._payloads()) - {"connect", "heartbeat"}))
        message = envelope(self.dialect, kind, self._payloads()[kind])
        return Case(f"{kind} before connect", oracle.BAD, self._frame(message))

    def _flipped(self) -> Case:
        """Some bits of the text: whatever it is now, one answer comes, or the connection ends as it may."""
        kind, message = self._message()
        text = bytearray(spelled(message, self._chance))
        for _ in range(self._chance.choice((1, 1, 2, 8))):
            text[self._chance.randrange(len(text))] ^= 1 << self._chance.randrange(8)
        return Case("flipped bits", ANYTHING, frame(bytes(text)), starts=kind == "connect")

    def _more_members(self) -> Case:
        """A member that nobody knows is ignored; one that no double or no UTF-8 can hold may be refused."""
        kind, message = self._message()
        inside = place_name(content_path(self.dialect))
        places = [path for path in ((), *paths(message)) if isinstance(at(message, path), dict)]
        path = self._chance.choice([path for path in places if not place_name(path).startswith(inside)])
        if place_name(path).endswith((".event", ".meta")):
            path = ()  # there it is data
        starts = kind == "connect"
        if self._chance.random() < 0.5:
            label = self._chance.choice(sorted(oracle.VALUES))
            data = self._frame(put(message, (*path, "unknown"), oracle.VALUES[label]))
            return Case(f"{label} as an unknown member", oracle.NORMAL[kind], data, starts)
        text = with_text(message, (*path, "unknown"), self._chance.choice(breakages.STRANGE))
        row = one_of(oracle.NORMAL[kind], oracle.BAD, oracle.INVALID if kind == "submit_events" else oracle.BAD)
        return Case("strange unknown member", row, frame(text), starts)

    def _broken(self, kind: str) -> Case:
        if kind in breakages.UNREADABLE:
            message = self._message()[1]
            data = breakages.UNREADABLE[kind](self._chance, message, self.dialect)
            return Case(kind, oracle.UNREADABLE[kind], data)
        message = breakages.message_for(kind, self.dialect, self._payloads())
        if kind in breakages.ITEMS:
            return Case(kind, oracle.ITEMS[kind], breakages.ITEMS[kind](self._chance, message, self.dialect))
        data = breakages.SEED_KINDS[kind](self._chance, message, self.dialect)
        return Case(kind, oracle.SEED_KINDS[kind], data)

    def _payloads(self) -> dict[str, Message]:
        return dict(payloads(self.dialect, self._client_id))

    def _message(self) -> tuple[str, Message]:
        if self._connects:
            return "connect", envelope(self.dialect, "connect", self._payloads()["connect"])
        kinds = ["submit_events", "submit_events", "submit_events", "sync", "sync"]
        if self.dialect is Dialect.SEED:
            kinds += ["heartbeat"] + ["disconnect"] * (self._chance.random() < 0.1)
        kind = self._chance.choice(kinds)
        return kind, envelope(self.dialect, kind, self._payloads()[kind])

    def _frame(self, message: Message) -> bytes:
        return frame(spelled(message, self._chance), mask=self._chance.randbytes(4))
