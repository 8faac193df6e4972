"""Kinds of damage to the bytes of a backup, each of which a restore must refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def _flipped(part: float) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        place = int(part * len(data))
        return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]

    return spoil


def _swapped(data: bytes) -> bytes:
    """Two parts of equal length change places."""
    a, b, size = len(data) // 3, len(data) // 2, min(200, len(data) // 8)
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def _cut_inside(data: bytes) -> bytes:
    return data[: len(data) // 3] + data[len(data) // 2 :]


SPOILED: Mapping[str, Callable[[bytes], bytes]] = {
    "first bit flipped": _flipped(0),
    "bit of the first page flipped": _flipped(0.01),
    "bit in the middle flipped": _flipped(0.5),
    "last bit flipped": _flipped(0.9999),
    "last byte cut": lambda data: data[:-1],
    "half of it cut": lambda data: data[: len(data) // 2],
    "all of it cut": lambda data: b"",
    "a part inside cut": _cut_inside,
    "two parts swapped": _swapped,
    "the end doubled": lambda data: data + data[-100:],
    "a part zeroed": lambda data: data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :],
}
