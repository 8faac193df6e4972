"""The one-pass reader of plain submissions beside the full readers: what it accepts, they read alike.

Messages of both dialects are generated, most of them plain, with odd values, odd members and edited bytes. `python -m
tests.events.rules.plain_messages --cases 1000000` compares as many as you like.
"""

from __future__ import annotations

import json
import random
from typing import Any

from semel.kernel.errors import Refused
from semel.surfaces.events.limits import EventLimits
from semel.surfaces.events.wire.camel_case_versions import CamelCaseV2
from semel.surfaces.events.wire.dialect import EventDialect, EventPolicy
from semel.surfaces.events.wire.messages import EventIdentity
from semel.surfaces.events.wire.session import EventSession
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect
from tests.harness.beside import compare_steps, main

PROJECT, CLIENT = "shop:4", "web:2"
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.0, 1.5, -0.0, 1e16, 1e300, 2**53, 2**63, 10**19, 10**25, "", "a", "a:b", "\u00e9", "e\u0301",
    "\U0001f600", "\ue000", "init", "forbidden", "x" * 200, [], {}, ["a", 1], {"type": "t"}, {"": {"a": [1, {"b": 2}]}},
)  # fmt: skip
ODD_NAMES = (
    "partition",
    "partitions",
    "client_id",
    "clientId",
    "userId",
    "extra",
    "id",
    "type",
    "meta",
    "msgId",
    "events",
)
EDITS = b'"\\:{}[],0e.-n\x00\xff u'


def _identity() -> EventIdentity:
    return EventIdentity(CLIENT, lambda name: name != "forbidden", lambda name: True, frozenset({CLIENT, "ann"}))


def session_of(dialect: EventDialect, policy: EventPolicy) -> EventSession:
    """An active session."""
    session = EventSession(policy, b"origin")
    session.dialect = dialect
    session.activate(_identity())
    return session


class Comparison:
    """Makes messages, and reads each of them twice."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        small = EventLimits(batch_items=4, message_bytes=chance.choice((2_048, 16_384)))
        limits = EventLimits() if chance.random() < 0.8 else small
        policy = EventPolicy(limits, strict_types=chance.random() < 0.1)
        self._is_snake = chance.random() < 0.5
        made = [SnakeCaseDialect() if self._is_snake else CamelCaseV2(PROJECT) for _ in range(2)]
        self._fast, self._full = (session_of(one, policy) for one in made)
        self.messages = self.plain = 0

    def step(self) -> None:
        """One message."""
        raw = self._bytes()
        self.messages += 1
        command = self._fast.read_plain(raw)
        if command is None:
            return
        self.plain += 1
        try:
            wanted = self._full.read(raw)
        except Refused as refused:
            raise AssertionError(f"the full reader refuses {raw!r}: {refused}") from None
        assert command == wanted, raw
        assert self._fast.reply_to == self._full.reply_to, raw

    def _bytes(self) -> bytes:
        chance = self._chance
        message = self._snake() if self._is_snake else self._camel()
        if chance.random() < 0.3:
            self._spoil(message)
        raw = json.dumps(
            message, ensure_ascii=chance.random() < 0.3, separators=chance.choice(((",", ":"), (", ", ": ")))
        )
        found = raw.encode("utf-8", "surrogatepass")
        if chance.random() < 0.2:
            found = self._edited(found)
        return found

    def _edited(self, raw: bytes) -> bytes:
        """The bytes with one changed, added, removed or repeated."""
        chance = self._chance
        at = chance.randrange(len(raw))
        if chance.random() < 0.4:  # a member twice
            size = chance.randrange(1, 30)
            return raw[:at] + raw[at : at + size] + raw[at:]
        sign = bytes([chance.choice(EDITS)])
        return chance.choice((raw[:at] + sign + raw[at + 1 :], raw[:at] + sign + raw[at:], raw[:at] + raw[at + 1 :]))

    def _spoil(self, message: dict[str, Any]) -> None:
        """Change or add a member of some object in the message."""
        chance = self._chance
        places: list[Any] = [message]
        for place in places:
            values = place.values() if isinstance(place, dict) else place
            places += [value for value in values if isinstance(value, dict | list)]
        place = chance.choice(places)
        value = chance.choice(ODD_VALUES)
        if isinstance(place, list):
            place.append(value)
        elif chance.random() < 0.3 or not place:
            place[chance.choice(ODD_NAMES)] = value
        elif chance.random() < 0.2:
            del place[chance.choice(list(place))]
        else:
            place[chance.choice(list(place))] = value

    def _ids(self) -> list[str]:
        chance = self._chance
        ids = [
            chance.choice((chance.randbytes(8).hex(), f"id:{chance.random()}"))
            for _ in range(chance.choice((1, 1, 2, 5)))
        ]
        return [*ids, ids[0]] if chance.random() < 0.02 else ids

    def _payload(self) -> Any:
        chance = self._chance
        deep: Any = 1
        for _ in range(chance.choice((0, 0, 0, 1, 3, 58, 59, 60, 62, 64))):
            deep = [deep] if chance.random() < 0.5 else {"d": deep}
        return {"n": chance.choice((1, 10**12, "a:b", 'say "x"\n', "1e5", "0.0", 2.5, None)), "deep": deep}

    def _snake(self) -> dict[str, Any]:
        names = self._chance.choice((["a"], ["b", "a", "a"], ["caf\u00e9"], ["cafe\u0301", "x:y"]))
        events = [
            {"id": one, "partitions": names, "event": {"type": "event", "payload": self._payload()}}
            for one in self._ids()
        ]
        return {
            "type": "submit_events",
            "msg_id": "m:1",
            "timestamp": 1_760_000_000_000,
            "protocol_version": "1.0",
            "payload": {"events": events},
        }

    def _camel(self) -> dict[str, Any]:
        chance = self._chance
        events = []
        for one in self._ids():
            item = {
                "id": one,
                "partition": "board:1",
                "projectId": PROJECT,
                "type": "card.moved",
                "schemaVersion": 1,
                "payload": self._payload(),
                "meta": {"clientId": CLIENT, "clientTs": 1_760_000_000_990},
            }
            if chance.random() < 0.2:
                item["userId"] = "ann"
            if chance.random() < 0.2:
                item["meta"] = {"clientTs": 5, "more": {"clientId": "x"}}
            events.append(item)
        message: dict[str, Any] = {"type": "submit_events", "protocolVersion": "1.0", "payload": {"events": events}}
        if chance.random() < 0.8:
            message |= {"msgId": "q:7", "timestamp": 1_760_000_000_000}
        return message


if __name__ == "__main__":
    main(__doc__, compare_steps(Comparison, 200, "messages"))
