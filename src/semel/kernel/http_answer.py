"""An HTTP answer as a value: the wire modules of the surfaces render it, and the HTTP host sends it."""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[bytes, bytes]


class Answer(NamedTuple):
    """A complete answer. The host adds Content-Length, and sends no body in answer to HEAD."""

    status: int
    headers: list[Header]
    body: bytes = b""
