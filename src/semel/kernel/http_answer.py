"""An HTTP answer as a value: what the wires of the surfaces render, and the host sends."""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[bytes, bytes]


class Answer(NamedTuple):
    """A whole answer. The host adds the length, and sends no body in answer to HEAD."""

    status: int
    headers: list[Header]
    body: bytes = b""
