"""What a server must answer to a frame that is wrong, as tables.

An outcome is the code of the answer and, if the connection ends, the code of its close frame. Where the contract leaves
a choice, a row has several outcomes; where it is silent about a detail, the row has every outcome that breaks none of
its rules. `PLACES` says for each place of each message what a value of another kind there is answered with, `KINDS`
does so for everything else that can be wrong with a message, `FRAMES` for what is wrong below the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.events.shapes import Dialect


class Outcome(NamedTuple):
    """An answer, empty if there is none, and the close code, None if the connection stays."""

    answer: str
    end: int | None = None


Row = frozenset[Outcome]


def one_of(*outcomes: Outcome | Row) -> Row:
    """Any of these."""
    return frozenset().union(*(item if isinstance(item, frozenset) else {item} for item in outcomes))


def only(answer: str, end: int | None = None) -> Row:
    """Exactly this."""
    return one_of(Outcome(answer, end))


BAD = only("bad_request")
COMMITTED = only("committed")
INVALID = only("rejected validation_failed")
FORBIDDEN = only("rejected forbidden")
BAD_ITEM = only("rejected bad_request")
PAGE = only("sync_response")
ACK = only("heartbeat_ack")
CONNECTED = only("connected")
FOREIGN = only("auth_failed", 1008)
PROFILE = only("profile_unsupported", 1008)
VERSION = only("protocol_version_unsupported", 1008)
CAMEL_VERSION = only("protocolVersion_unsupported", 1008)
DISCONNECTED = only("", 1000)
SILENCE = only("")
OVERSIZE = only("bad_request", 1009)
BROKEN = only("", 1002)
NOT_TEXT = only("", 1007)
ANY_ITEM = one_of(COMMITTED, INVALID, FORBIDDEN, BAD_ITEM, BAD)

NORMAL: Mapping[str, Row] = {
    "connect": CONNECTED,
    "submit_events": COMMITTED,
    "sync": PAGE,
    "heartbeat": ACK,
    "disconnect": DISCONNECTED,
}
"""What a message that is right is answered with."""


class Place(NamedTuple):
    """What follows from another value at one place: `but` names the values that are not wrong, or not as wrong."""

    wrong: Row
    missing: Row
    but: Mapping[str, Row] = {}
    inside: Row = frozenset()
    """What follows from any change further in, where the application's own values are."""

    def row(self, value: str | None) -> Row:
        """The outcomes for a value of this label; None is a member left out."""
        return self.missing if value is None else self.but.get(value, self.wrong)


VALUES: Mapping[str, object] = {
    "null": None,
    "true": True,
    "number": 7,
    "negative": -7,
    "fraction": 7.5,
    "empty text": "",
    "text": "other",
    "empty list": [],
    "list of texts": ["other"],
    "list of numbers": [7],
    "empty object": {},
    "object": {"a": 7},
}
NUMBERS = ("number", "negative", "fraction")
OBJECTS = ("empty object", "object")


def _all(values: tuple[str, ...], row: Row) -> dict[str, Row]:
    return dict.fromkeys(values, row)


def _anything(row: Row) -> Place:
    return Place(row, row, inside=row)


_CLIENT = Place(one_of(FOREIGN, BAD), COMMITTED, {"text": FOREIGN, "null": one_of(FOREIGN, BAD, COMMITTED)})
_NAME = Place(BAD, PAGE, {"text": PAGE})
_CREDENTIAL = Place(one_of(BAD, FOREIGN), one_of(BAD, FOREIGN), {"text": CONNECTED})
_TOKEN = Place(
    _CREDENTIAL.wrong, _CREDENTIAL.missing, {"text": CONNECTED, "empty text": one_of(BAD, FOREIGN, CONNECTED)}
)

_SEED: Mapping[str, Mapping[str, Place]] = {
    "submit_events": {
        "payload": Place(BAD, BAD),
        "payload.client_id": _CLIENT,
        "payload.events": Place(BAD, BAD),
        "payload.events[]": Place(BAD, BAD),
        "payload.events[].id": Place(BAD, BAD, {"text": one_of(COMMITTED, INVALID)}),
        "payload.events[].partitions": Place(BAD, BAD, {"empty list": INVALID, "list of texts": COMMITTED}),
        "payload.events[].partitions[]": Place(BAD, COMMITTED, {"text": COMMITTED, "empty text": INVALID}),
        "payload.events[].event": Place(BAD, BAD, _all(OBJECTS, INVALID)),
        "payload.events[].event.type": Place(INVALID, INVALID, {"text": COMMITTED}),
        "payload.events[].event.payload": _anything(COMMITTED),
        "payload.events[].client_id": _CLIENT,
    },
    "sync": {
        "payload": Place(BAD, BAD),
        "payload.partitions": Place(BAD, BAD, {"list of texts": PAGE}),
        "payload.partitions[]": _NAME,
        "payload.since_committed_id": Place(BAD, BAD, {"number": PAGE}),
        "payload.limit": Place(one_of(BAD, PAGE), PAGE, {"number": PAGE}),
        "payload.subscription_partitions": Place(
            BAD, PAGE, {"null": one_of(BAD, PAGE), "empty list": PAGE, "list of texts": PAGE}
        ),
        "payload.subscription_partitions[]": _NAME,
    },
    "heartbeat": {"payload": Place(BAD, BAD, _all(OBJECTS, ACK))},
    "disconnect": {
        "payload": Place(BAD, BAD, _all(OBJECTS, DISCONNECTED)),
        "payload.reason": Place(one_of(BAD, DISCONNECTED), DISCONNECTED, {"text": DISCONNECTED}),
    },
    "connect": {
        "payload": Place(BAD, BAD, _all(OBJECTS, one_of(BAD, FOREIGN))),
        "payload.token": _TOKEN,
        "payload.client_id": _CREDENTIAL,
        "payload.last_committed_id": Place(one_of(BAD, CONNECTED), CONNECTED, {"number": CONNECTED}),
        "payload.supported_profiles": _anything(one_of(BAD, PROFILE, CONNECTED)),
        "payload.supported_profiles[]": _anything(one_of(BAD, PROFILE, CONNECTED)),
        "payload.required_profile": Place(
            one_of(BAD, PROFILE), CONNECTED, {"text": PROFILE, "null": one_of(BAD, PROFILE, CONNECTED)}
        ),
    },
}
_PROJECT: Mapping[str, Mapping[str, Place]] = {
    "submit_events": {
        "payload": Place(BAD, BAD),
        "payload.events": Place(BAD, BAD),
        "payload.events[]": Place(BAD, BAD),
        "payload.events[].id": Place(
            BAD, BAD, {"text": one_of(COMMITTED, INVALID), "empty text": one_of(BAD, INVALID)}
        ),
        "payload.events[].partition": Place(BAD_ITEM, BAD_ITEM, {"text": COMMITTED}),
        "payload.events[].projectId": Place(one_of(INVALID, FORBIDDEN), INVALID, {"text": FORBIDDEN}),
        "payload.events[].type": Place(INVALID, INVALID, {"text": COMMITTED}),
        "payload.events[].schemaVersion": Place(INVALID, INVALID, {"number": COMMITTED}),
        "payload.events[].payload": Place(INVALID, INVALID, _all(OBJECTS, COMMITTED), COMMITTED),
        "payload.events[].meta": Place(INVALID, INVALID),
        "payload.events[].meta.clientId": Place(
            one_of(INVALID, FORBIDDEN), one_of(INVALID, FORBIDDEN, COMMITTED), {"text": FORBIDDEN}
        ),
        "payload.events[].meta.clientTs": Place(INVALID, INVALID, _all(NUMBERS, COMMITTED)),
    },
    "sync": {
        "payload": Place(BAD, BAD),
        "payload.projectId": _anything(one_of(BAD, only("forbidden"), PAGE)),
        "payload.sinceCommittedId": Place(BAD, one_of(BAD, PAGE), {"number": PAGE}),
        "payload.limit": Place(one_of(BAD, PAGE), PAGE, {"number": PAGE}),
    },
    "connect": {
        "payload": Place(BAD, BAD, _all(OBJECTS, one_of(BAD, FOREIGN))),
        "payload.token": _TOKEN,
        "payload.clientId": _CREDENTIAL,
        "payload.projectId": Place(BAD, CONNECTED, {"text": CONNECTED}),
    },
}
_FLAT: Mapping[str, Mapping[str, Place]] = {
    "submit_events": {
        "payload": Place(BAD, BAD),
        "payload.events": Place(BAD, BAD),
        "payload.events[]": Place(BAD, BAD),
        "payload.events[].payload": _anything(ANY_ITEM),
    }
    | {f"payload.events[].{name}": _anything(ANY_ITEM) for name in ("id", "partitions", "partitions[]", "type", "meta")}
    | {f"payload.events[].meta.{name}": _anything(ANY_ITEM) for name in ("clientId", "clientTs")},
    "sync": {
        "payload": Place(BAD, BAD),
        "payload.partitions": Place(BAD, BAD, {"list of texts": PAGE}),
        "payload.partitions[]": _NAME,
        "payload.sinceCommittedId": Place(BAD, one_of(BAD, PAGE), {"number": PAGE}),
        "payload.limit": Place(one_of(BAD, PAGE), PAGE, {"number": PAGE}),
    },
}
PLACES: Mapping[Dialect, Mapping[str, Mapping[str, Place]]] = {
    Dialect.SEED: _SEED,
    Dialect.PROJECT: _PROJECT,
    Dialect.FLAT: _FLAT,
}


def _envelope(dialect: Dialect, normal: Row) -> Mapping[str, Place]:
    lax = one_of(BAD, normal)
    if dialect is Dialect.SEED:
        return {
            "type": Place(BAD, BAD),
            "msg_id": Place(BAD, BAD, {"text": normal}),
            "timestamp": Place(BAD, BAD, _all(NUMBERS, normal)),
            "protocol_version": Place(BAD, BAD, _all(("text", "empty text"), VERSION)),
        }
    return {
        "type": Place(BAD, BAD),
        "msgId": Place(lax, normal, {"text": normal}),
        "timestamp": Place(lax, normal, _all(NUMBERS, normal)),
        "protocolVersion": Place(BAD, lax, _all(("text", "empty text"), CAMEL_VERSION)),
    }


def place_row(dialect: Dialect, kind: str, place: str, value: str | None) -> Row:
    """The outcomes of another value at one place of a message."""
    places = {**_envelope(dialect, NORMAL[kind]), **PLACES[dialect][kind]}
    if place in places:
        return places[place].row(value)
    while place not in places:
        place = place.removesuffix("[]") if place.endswith("[]") else place.rpartition(".")[0]
    return places[place].inside


# What is wrong, whatever the message: it is not even read.
UNREADABLE: Mapping[str, Row] = {
    "cut short": BAD,
    "garbage": BAD,
    "empty": BAD,
    "another root": BAD,
    "text behind": BAD,
    "byte order mark": BAD,
    "no JSON token": BAD,
    "raw control character": BAD,
    "duplicate name": BAD,
    "endless nesting": BAD,
    "unknown type": BAD,
    "binary": BAD,
    "invalid UTF-8": one_of(BAD, NOT_TEXT),
    "too large": OVERSIZE,
    "too large in fragments": OVERSIZE,
}

# What is wrong with one item, or looks wrong and is not: seed and 2.x agree.
ITEMS: Mapping[str, Row] = {
    "deep event": INVALID,
    "deep and broken event": one_of(INVALID, BAD),
    "deepest event": COMMITTED,
    "number out of range": INVALID,
    "odd number": COMMITTED,
    "lone surrogate": INVALID,
    "lone surrogate in a name": INVALID,
    "long text": COMMITTED,
    "long id": INVALID,
    "longest id": COMMITTED,
    "surrogate in the id": one_of(INVALID, BAD),
    "too many items": BAD,
    "same id twice": BAD,
    "full batch": COMMITTED,
}
SEED_KINDS: Mapping[str, Row] = {
    "too many partitions": INVALID,
    "most partitions": COMMITTED,
    "one partition many times": COMMITTED,
    "long partition": INVALID,
    "longest partition": COMMITTED,
    "surrogate in a partition": INVALID,
    "partition that is slow to normalize": INVALID,
    "retired key in an item": BAD,
    "retired key in a submit": BAD,
    "retired key in a sync": BAD,
    "too many names to sync": BAD,
    "most names to sync": PAGE,
    "long name to sync": BAD,
    "surrogate in a name to sync": BAD,
    "name to sync that is slow to normalize": BAD,
    "cursor of the future": PAGE,
    "cursor beyond all numbers": one_of(BAD, PAGE),
    "cursor that overflows": BAD,
    "connect again": BAD,
}

STRANGER_BYTES = 65_536
"""What a message may have before the handshake; more is too large."""

# Below the message.
FRAMES: Mapping[str, Row] = {
    "reserved bit": BROKEN,
    "reserved opcode": BROKEN,
    "no mask": BROKEN,
    "long ping": BROKEN,
    "ping in fragments": BROKEN,
    "continuation of nothing": BROKEN,
    "message inside a message": BROKEN,
    "close of one byte": BROKEN,
    "close with a forbidden code": BROKEN,
    "close with broken text": one_of(NOT_TEXT, BROKEN),
    "close": DISCONNECTED,
    "huge length": one_of(OVERSIZE, only("", 1009)),
    "impossible length": one_of(OVERSIZE, only("", 1009), BROKEN),
    "wide length": one_of(ACK, BROKEN),
    "fragments": ACK,
    "fragments with a ping between": ACK,
    "ping": SILENCE,
    "pong": SILENCE,
    "broken character over fragments": one_of(BAD, NOT_TEXT),
}

# Handshakes that are none, and the statuses that may answer them; 0 is a connection closed without a word.
UPGRADES: Mapping[str, frozenset[int]] = {
    "no key": frozenset({400}),
    "short key": frozenset({400}),
    "two keys": frozenset({400}),
    "old version": frozenset({400, 426}),
    "no version": frozenset({400, 426}),
    "another protocol": frozenset({400, 426}),
    "no upgrade": frozenset({400, 426}),
    "POST": frozenset({400, 405, 411, 415, 426}),
    "DELETE": frozenset({400, 405, 426}),
    "HTTP/1.0": frozenset({400, 426, 505}),
    "another path": frozenset({400, 404}),
    "garbage": frozenset({0, 400}),
    "long header": frozenset({0, 400, 431}),
    "bytes that are no header": frozenset({0, 400}),
    "another case": frozenset({101}),
}
