"""Right messages of every dialect, and ways to change one place of them; what the mutations are made of."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from tests.events.shapes import Dialect

Path = tuple[str | int, ...]
Message = dict[str, Any]

PROJECT = "fuzz"
NAMES = ["fuzz", "fuzz-é"]
PLACEHOLDER = "@placeholder@"

_numbers = itertools.count(1)


def payloads(dialect: Dialect, client_id: str) -> Mapping[str, Message]:
    """A right payload for each message that a client may send."""
    number = next(_numbers)
    # With a check value, so that no few flipped bits make the id of another item of it.
    event_id = f"f{number}-{number * 2_654_435_761 % 2**32:08x}"
    content = {"n": number, "text": "é\U0001f600", "list": [1, 2.5, None, True]}
    if dialect is Dialect.SEED:
        return _seed_payloads(event_id, content, client_id)
    item: Message = {"id": event_id, "type": "t", "payload": content}
    item["meta"] = {"clientId": client_id, "clientTs": 1_760_000_000_000}
    connect = {"token": "any", "clientId": client_id}
    sync: Message = {"sinceCommittedId": 3, "limit": 2}
    if dialect is Dialect.PROJECT:
        item |= {"partition": "board", "projectId": PROJECT, "schemaVersion": 1}
        sync["projectId"] = connect["projectId"] = PROJECT
    else:
        item["partitions"], sync["partitions"] = [*NAMES], [*NAMES]
    return {"submit_events": {"events": [item]}, "sync": sync, "connect": connect}


def _seed_payloads(event_id: str, content: Message, client_id: str) -> Mapping[str, Message]:
    item: Message = {"id": event_id, "partitions": [*NAMES], "event": {"type": "t", "payload": content}}
    connect = {"token": "any", "client_id": client_id, "last_committed_id": 0}
    connect |= {"supported_profiles": ["canonical"], "required_profile": "canonical"}
    return {
        "submit_events": {"events": [item | {"client_id": client_id}], "client_id": client_id},
        "sync": {"partitions": [*NAMES], "since_committed_id": 3, "limit": 2, "subscription_partitions": [*NAMES]},
        "heartbeat": {},
        "disconnect": {"reason": "done"},
        "connect": connect,
    }


def envelope(dialect: Dialect, kind: str, payload: object, message_id: str = "") -> Message:
    """A right message."""
    message_id = message_id or f"m{next(_numbers)}"
    message = {"type": kind, "timestamp": 1_760_000_000_000, "payload": payload}
    if dialect is Dialect.SEED:
        return message | {"msg_id": message_id, "protocol_version": "1.0"}
    return message | {"msgId": message_id, "protocolVersion": "1.0"}


def content_path(dialect: Dialect) -> Path:
    """The place of the application's own object in a submit."""
    item: Path = ("payload", "events", 0)
    return (*item, "event", "payload") if dialect is Dialect.SEED else (*item, "payload")


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place inside a document."""
    members: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, dict):
        members = iter(value.items())
    elif isinstance(value, list):
        members = iter(enumerate(value))
    for name, inner in members:
        yield (*path, name)
        yield from paths(inner, (*path, name))


def place_name(path: Path) -> str:
    """How the oracle calls a place: `payload.events[].id`."""
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def at(document: Any, path: Path) -> Any:
    """What is there."""
    for step in path:
        document = document[step]
    return document


def put(document: Message, path: Path, value: object) -> Message:
    """A copy with another value at one place."""
    copy = deepcopy(document)
    at(copy, path[:-1])[path[-1]] = value
    return copy


def drop(document: Message, path: Path) -> Message:
    """A copy without one member."""
    copy = deepcopy(document)
    del at(copy, path[:-1])[path[-1]]
    return copy


def with_text(document: Message, path: Path, text: str) -> bytes:
    """The text of a document with any text where a value was."""
    return json.dumps(put(document, path, PLACEHOLDER)).replace(json.dumps(PLACEHOLDER), text).encode()


def with_name(document: Message, path: Path, text: str, value: object) -> bytes:
    """The text of a document with one more member in an object, whose name is any text."""
    return json.dumps(put(document, (*path, PLACEHOLDER), value)).replace(json.dumps(PLACEHOLDER), text).encode()


def spelled(document: object, chance: random.Random) -> bytes:
    """One of the many texts of a document."""
    separators = chance.choice(((",", ":"), (", ", ": "), (" ,\n", "\t: ")))
    return json.dumps(document, ensure_ascii=chance.random() < 0.5, separators=separators).encode()
