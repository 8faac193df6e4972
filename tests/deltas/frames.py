"""The entries in a checkpoint, read from its bytes by hand: frames of a length and a protobuf message each."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

from tests.deltas.vectors import Message

VARINT, FIXED64, LENGTH = 0, 1, 2
OPS = {1: "INSERT", 2: "UPDATE", 3: "DELETE"}


def checkpoint_entries(stream: bytes) -> Iterator[Message]:
    """Every entry, in order."""
    place = 0
    while place < len(stream):
        [length] = struct.unpack_from(">I", stream, place)
        frame = stream[place + 4 : place + 4 + length]
        assert len(frame) == length, "the stream ends within a frame"
        for number, value in _fields(frame):
            if number == 1:
                assert isinstance(value, bytes)
                yield _entry(value)
        place += 4 + length


def _entry(message: bytes) -> Message:
    texts = {2: "table", 3: "rowId", 6: "clientId", 7: "deltaId"}
    entry: Message = {"columns": []}
    for number, value in _fields(message):
        if number in texts:
            assert isinstance(value, bytes)
            entry[texts[number]] = value.decode()
        elif number == 1:
            assert isinstance(value, int)
            entry["op"] = OPS[value]
        elif number == 5:
            entry["hlc"] = str(value)
        elif number == 4:
            assert isinstance(value, bytes)
            cell = dict(_fields(value))
            name, content = cell[1], cell[2]
            assert isinstance(name, bytes)
            assert isinstance(content, bytes)
            entry["columns"].append({"column": name.decode(), "value": json.loads(content)})
    return entry


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and the value of each field."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            found, place = _varint(message, place)
            yield number, found
        elif kind == FIXED64:
            yield number, struct.unpack_from("<Q", message, place)[0]
            place += 8
        else:
            assert kind == LENGTH, kind
            length, place = _varint(message, place)
            yield number, message[place : place + length]
            place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
