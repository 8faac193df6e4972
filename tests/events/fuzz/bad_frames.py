"""Faults below the message: frames that break RFC 6455, first frames that tell no dialect, handshakes that are none."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping

from tests.events import raw_frames
from tests.events.fuzz.breakages import BAD_UTF8
from tests.events.fuzz.documents import Message, envelope, payloads, spelled
from tests.events.fuzz.mutations import Case
from tests.events.fuzz.oracle import BAD, FRAMES, OVERSIZE, STRANGER_BYTES, UNREADABLE
from tests.events.raw_frames import CLOSE, CONTINUATION, HANDSHAKE, PING, frame, unframed
from tests.events.shapes import Dialect


def heartbeat(message_id: str = "") -> bytes:
    """The text of a message that is right."""
    return json.dumps(envelope(Dialect.SEED, "heartbeat", {}, message_id)).encode()


def in_fragments(chance: random.Random, between: bytes = b"") -> bytes:
    """A heartbeat in several frames."""
    text = heartbeat()
    cut, end = sorted(chance.sample(range(1, len(text)), 2))
    first, second = frame(text[:cut], fin=False), frame(text[cut:end], CONTINUATION, fin=False)
    return first + between + second + between + frame(text[end:], CONTINUATION)


def split_character(chance: random.Random) -> bytes:
    text = json.dumps(envelope(Dialect.SEED, "heartbeat", {"text": "@"})).encode()
    before, _, after = text.partition(b"@")
    bad = chance.choice(BAD_UTF8)
    return frame(before + bad[:1], fin=False) + frame(bad[1:] + after, CONTINUATION)


def forbidden_close(chance: random.Random) -> bytes:
    return frame(struct.pack(">H", chance.choice((0, 999, 1004, 1005, 1006, 1015, 2999, 65_535))), CLOSE)


_MAKERS: Mapping[str, Callable[[random.Random], bytes]] = {
    "reserved bit": lambda chance: frame(heartbeat(), reserved=chance.choice((1, 2, 4, 7))),
    "reserved opcode": lambda chance: frame(heartbeat(), chance.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15))),
    "no mask": lambda chance: frame(heartbeat(), mask=None),
    "long ping": lambda chance: frame(b"x" * chance.choice((126, 1_000, 70_000)), PING),
    "ping in fragments": lambda chance: frame(b"x", PING, fin=False),
    "continuation of nothing": lambda chance: frame(heartbeat(), CONTINUATION, fin=chance.random() < 0.5),
    "message inside a message": lambda chance: frame(b"{", fin=False) + frame(heartbeat()),
    "close of one byte": lambda chance: frame(b"\x03", CLOSE),
    "close with a forbidden code": forbidden_close,
    "close with broken text": lambda chance: frame(b"\x03\xe8" + chance.choice(BAD_UTF8), CLOSE),
    "close": lambda chance: frame(b"\x03\xe8" + chance.choice((b"", b"bye", "é".encode())), CLOSE),
    "huge length": lambda chance: frame(b"{", length=chance.choice((1_048_577, 2**32, 2**40, 2**62))),
    "impossible length": lambda chance: frame(b"{", length=chance.choice((2**63, 2**64 - 1))),
    "wide length": lambda chance: frame(heartbeat(), wide=True),
    "fragments": in_fragments,
    "fragments with a ping between": lambda chance: in_fragments(chance, frame(b"x", PING)),
    "ping": lambda chance: frame(chance.randbytes(chance.randrange(126)), PING),
    "pong": lambda chance: frame(chance.randbytes(chance.randrange(126)), raw_frames.PONG),
    "broken character over fragments": split_character,
}


class FrameMutator:
    """Makes cases that are wrong, or only odd, as frames; the connection speaks the seed dialect."""

    dialect = Dialect.SEED

    def __init__(self, chance: random.Random, client_id: str) -> None:
        self._chance = chance
        self._client_id = client_id

    def case(self) -> Case:
        """The next one."""
        kind = self._chance.choice(sorted(FRAMES))
        return Case(kind, FRAMES[kind], _MAKERS[kind](self._chance))

    def mark(self, message_id: str) -> bytes:
        """A message that is right."""
        return frame(heartbeat(message_id))

    def hello(self) -> bytes:
        """The handshake."""
        payload = payloads(Dialect.SEED, self._client_id)["connect"]
        return frame(spelled(envelope(Dialect.SEED, "connect", payload), self._chance))


FIRST_KINDS = ("both versions", "no version", *sorted(set(UNREADABLE) - {"too large", "too large in fragments"}))


def first_frame(kind: str, chance: random.Random, makers: Mapping[str, Callable[..., bytes]]) -> Case:
    """A first frame that tells no dialect; the answer then speaks both."""
    dialect = chance.choice((Dialect.SEED, Dialect.PROJECT))
    message: Message = envelope(dialect, "connect", payloads(dialect, "first")["connect"])
    if kind == "both versions":
        message |= {"protocol_version": "1.0", "protocolVersion": "1.0"}
        return Case(kind, BAD, frame(spelled(message, chance)))
    if kind == "no version":
        message = {name: value for name, value in message.items() if "rotocol" not in name}
        return Case(kind, BAD, frame(spelled(message, chance)))
    data = makers[kind](chance, message, dialect)
    return Case(kind, OVERSIZE if len(unframed(data)) > STRANGER_BYTES else UNREADABLE[kind], data)


def without(name: bytes) -> bytes:
    """The handshake without one header."""
    return b"\r\n".join(line for line in HANDSHAKE.split(b"\r\n") if not line.lower().startswith(name))


HANDSHAKES: Mapping[str, Callable[[random.Random], bytes]] = {
    "no key": lambda chance: without(b"sec-websocket-key"),
    "short key": lambda chance: HANDSHAKE.replace(b"AAAAAAAAAAAAAAAAAAAAAA==", b"AAAA"),
    "two keys": lambda chance: HANDSHAKE.replace(b"Sec-WebSocket-Key", b"Sec-WebSocket-Key: B\r\nSec-WebSocket-Key"),
    "old version": lambda chance: HANDSHAKE.replace(
        b"Version: 13", b"Version: %d" % chance.choice((0, 8, 12, 14, 255))
    ),
    "no version": lambda chance: without(b"sec-websocket-version"),
    "another protocol": lambda chance: HANDSHAKE.replace(b"websocket\r\n", chance.choice((b"h2c\r\n", b"x\r\n"))),
    "no upgrade": lambda chance: without(b"upgrade"),
    "POST": lambda chance: HANDSHAKE.replace(b"GET", b"POST"),
    "DELETE": lambda chance: HANDSHAKE.replace(b"GET", b"DELETE"),
    "HTTP/1.0": lambda chance: HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "another path": lambda chance: HANDSHAKE.replace(b"/v1/events", chance.choice((b"/v1/eventss", b"/v1/events/x"))),
    "garbage": lambda chance: chance.randbytes(chance.randrange(1, 400)) + b"\r\n\r\n",
    "long header": lambda chance: HANDSHAKE.replace(b"Host: localhost", b"Host: localhost\r\nX: " + b"x" * 200_000),
    "bytes that are no header": lambda chance: HANDSHAKE.replace(
        b"Host: localhost", b"Host: localhost\r\n" + b"\0\xff\r\r"
    ),
    "another case": lambda chance: HANDSHAKE.replace(b"websocket\r\n", b"WebSocket\r\n").replace(
        b"Upgrade", b"UPGRADE"
    ),
}
